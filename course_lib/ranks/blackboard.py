"""Memory in which each rank writes what it is about to do, and which the parent can always read.

A rank that waits for ever in compiled code can't answer a question. So it writes each operation
down before it starts it. On Linux the memory has no name in any file system and leaves nothing.
"""

from __future__ import annotations

import contextlib
import marshal
import mmap
import os
import sys
import tempfile
from typing import Any

SLOT_BYTES = 32 * 1024
_HALF_BYTES = SLOT_BYTES // 2 - 8
_HEADER_BYTES = 8  # byte 0 says which half is valid, byte 1 whether the rank waits


class Blackboard:
    """A slot for each rank; the parent creates it, ranks open it by its path."""

    def __init__(self, memory: mmap.mmap, path: str, descriptor: int = -1) -> None:
        self.path = path
        self._memory = memory
        self._descriptor = descriptor

    @classmethod
    def create(cls, world_size: int) -> Blackboard:
        """Make a blackboard for `world_size` ranks (the parent's side)."""
        if sys.platform.startswith("linux"):
            descriptor = os.memfd_create("course_ranks", os.MFD_CLOEXEC)
            path = f"/proc/{os.getpid()}/fd/{descriptor}"
        else:
            descriptor, path = tempfile.mkstemp(prefix="course_ranks_")
        os.ftruncate(descriptor, world_size * SLOT_BYTES)
        memory = mmap.mmap(descriptor, world_size * SLOT_BYTES)
        return cls(memory, path, descriptor)

    @classmethod
    def open(cls, path: str) -> Blackboard:
        """Open the parent's blackboard (a rank's side)."""
        with open(path, "r+b") as file:
            return cls(mmap.mmap(file.fileno(), 0), path)

    def write(self, rank: int, note: dict[str, Any]) -> None:
        """Replace a rank's note; a reader sees the old one or the new one, never a mixture.

        A note is made of dicts, lists, strings, numbers and None; "blocked" is what it waits in.
        """
        text = marshal.dumps(note)
        if len(text) + 4 > _HALF_BYTES:
            return
        start = rank * SLOT_BYTES
        half = 1 - self._memory[start]
        at = start + _HEADER_BYTES + half * _HALF_BYTES
        self._memory[at : at + 4 + len(text)] = len(text).to_bytes(4, "big") + text
        self._memory[start] = half
        self._memory[start + 1] = note["blocked"] is not None

    def go_on(self, rank: int) -> None:
        """Say that a rank doesn't wait any more; the rest of its note stays (one byte: cheap)."""
        self._memory[rank * SLOT_BYTES + 1] = 0

    def read(self, rank: int) -> dict[str, Any] | None:
        """Return a rank's last note, None if it wrote none yet."""
        start = rank * SLOT_BYTES
        for _ in range(5):
            half = self._memory[start]
            at = start + _HEADER_BYTES + half * _HALF_BYTES
            size = int.from_bytes(self._memory[at : at + 4], "big")
            text = self._memory[at + 4 : at + 4 + size]
            if self._memory[start] == half:
                with contextlib.suppress(ValueError, EOFError, TypeError):
                    note = dict(marshal.loads(text)) if size else None
                    if note is not None and not self._memory[start + 1]:
                        note["blocked"] = None
                    return note
        return None

    def close(self) -> None:
        """Release the memory (the parent's side also removes what had a name)."""
        self._memory.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if not self.path.startswith("/proc/"):
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
