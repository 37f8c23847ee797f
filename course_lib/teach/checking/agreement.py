"""A few bytes that all ranks of a check share: who has ended which case, who waits.

They lie in a small file that each rank maps: a rank that is stuck in compiled code, or dead, can't
answer questions, but what it wrote stays.
"""

import mmap
import time
from pathlib import Path

# A rank that failed stays this long, so that others can report failures of their own first.
LINGER_S = 0.5
OK, BAD = 1, 2
BUSY, IDLE, DONE, TOLD, OVER = 0, 1, 2, 3, 4


class Agreement:
    """One rank's view of the shared bytes.

    Args:
        path: the file, made by `create`.
        rank: this rank.
        world_size: how many ranks.
        steps: how many cases the exercise's properties have together.
    """

    def __init__(self, path: Path, rank: int, world_size: int, steps: int) -> None:
        self.rank, self.world_size = rank, world_size
        self._states = steps * world_size
        with open(path, "r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), _size_bytes(world_size, steps))

    @staticmethod
    def create(path: Path, world_size: int, steps: int) -> None:
        """Write the empty file, before any rank starts."""
        path.write_bytes(bytes(_size_bytes(world_size, steps)))

    def all_ok(self, step: int, ok: bool) -> bool:
        """Tell this rank's outcome of case `step`; wait for the others'; True if all are ok.

        Once one has failed, the wait is short: the others may wait for it forever.
        """
        start = step * self.world_size
        self._bytes[start + self.rank] = OK if ok else BAD
        self.set_state(DONE)
        deadline: float | None = None
        while 0 in (seen := self._bytes[start : start + self.world_size]):
            if BAD in seen and deadline is None:
                deadline = time.monotonic() + LINGER_S
            if deadline is not None and time.monotonic() > deadline:
                self.set_state(OVER)
                return False
            time.sleep(0.0005)
        self.set_state(BUSY)
        return seen == bytes([OK]) * self.world_size

    def set_state(self, state: int) -> None:
        """Say what this rank is doing: BUSY, IDLE (waits in its answer), DONE (waits for others),
        TOLD (has written where it waits) or OVER (all is known: the others may end)."""
        self._bytes[self._states + self.rank] = state

    def states(self) -> bytes:
        """Return every rank's state, in rank order."""
        return self._bytes[self._states : self._states + self.world_size]


def _size_bytes(world_size: int, steps: int) -> int:
    return world_size * (steps + 1)
