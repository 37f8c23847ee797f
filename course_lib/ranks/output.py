"""What ranks print, shown by the parent: whole lines, prefixed, in rank order, capped.

Rank 0's lines appear while it runs; the others' follow in order of rank when all have ended. So the
text is the same each time, for a person and for a test.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

HEAD_LINES = 500
TAIL_LINES = 500
MAX_LINE_CHARS = 10_000


class RankOutput:
    """Collects one rank's output; keeps the first and the last lines of a flood.

    Args:
        show: called with each line of the head as soon as it is whole; None keeps it for later.
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self.head: list[str] = []
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.left_out = 0
        self._show = show
        self._shown = 0
        self._partial = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def feed(self, data: bytes) -> None:
        """Take in bytes as they come from the pipe; b"" marks the end."""
        text = self._partial + self._decoder.decode(data, final=not data)
        *lines, self._partial = text.split("\n")
        if len(self._partial) > 2 * MAX_LINE_CHARS:  # an endless line must not fill the memory
            self._partial = self._partial[: MAX_LINE_CHARS + 1]
        if not data and self._partial:
            lines.append(self._partial)
            self._partial = ""
        for line in lines:
            self._add(_tidy(line))

    def finish(self) -> None:
        """Close the text: a last line without its end counts, and the tail is shown."""
        self.feed(b"")
        if self._show is not None:
            for line in self.lines()[self._shown :]:
                self._show(line)
            self._show = None

    def lines(self) -> list[str]:
        """Return the lines to show, with a note where some were left out."""
        if not self.left_out:
            return [*self.head, *self.tail]
        return [*self.head, f"… {self.left_out} lines left out …", *self.tail]

    def _add(self, line: str) -> None:
        if len(self.head) < HEAD_LINES:
            self.head.append(line)
            if self._show is not None:
                self._show(line)
                self._shown += 1
            return
        if len(self.tail) == TAIL_LINES:
            self.left_out += 1
        self.tail.append(line)


def _tidy(line: str) -> str:
    """Keep what a terminal would show of a line that was drawn over, and no endless line."""
    line = line.rstrip("\r").rsplit("\r", 1)[-1]
    if len(line) > MAX_LINE_CHARS:
        return line[:MAX_LINE_CHARS] + " … (the rest of the line left out)"
    return line
