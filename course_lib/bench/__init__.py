"""Each hand-written part against its peer, measured in turn in one run: `course bench NAME`."""
