"""A link over shared memory: ranks of one machine copy bytes through a ring that both map.

Each direction of a pair has one ring of 1 MiB, made when it is first used. A rank moves its bytes
while it waits; it has no thread of its own for that. On Linux the memory has no name in any file
system: nothing is left behind, and the size of /dev/shm doesn't matter.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import sys
import tempfile
import threading
import time
from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

RING_BYTES = 1 << 20
_HEADER_BYTES = 128  # the two counters stand on cache lines of their own
_LENGTH_BYTES = 8
_YIELDS = 50  # before a rank that waits starts to sleep
_SLEEP_S = 50e-6
_lock = threading.Lock()


class Ring:
    """A stream of bytes from one process to one other, in memory that both map."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._view = memoryview(memory)
        self._written = self._view[0:8].cast("Q")
        self._read = self._view[64:72].cast("Q")
        self._data = self._view[_HEADER_BYTES:]

    def write(self, data: memoryview) -> int:
        """Copy in what there is room for and return how many bytes that was."""
        written = self._written[0]
        size = min(len(data), len(self._data) - (written - self._read[0]))
        self._copy(written, data[:size], inward=True)
        _barrier()
        self._written[0] = written + size
        return size

    def read(self, data: memoryview) -> int:
        """Copy out what has come, at most the room in `data`; return how many bytes."""
        read = self._read[0]
        size = min(len(data), self._written[0] - read)
        _barrier()
        self._copy(read, data[:size], inward=False)
        _barrier()
        self._read[0] = read + size
        return size

    def _copy(self, position: int, data: memoryview, inward: bool) -> None:
        at = position % len(self._data)
        first = min(len(data), len(self._data) - at)
        for start, part in ((at, data[:first]), (0, data[first:])):
            place = self._data[start : start + len(part)]
            if inward:
                place[:] = part
            else:
                part[:] = place


def _barrier() -> None:
    """Keep the order of memory accesses where the processor may change it (ARM)."""
    for _ in range(2):
        with _lock:
            pass


class _Move:
    """One message on its way through a ring: its length, then its bytes."""

    def __init__(self, tensor: Tensor, key: tuple[int, int]) -> None:
        self.key = key
        self.tensor = tensor
        flat = tensor.detach().reshape(-1).view(torch.uint8)
        self.data = flat.numpy().data if tensor.numel() else memoryview(b"")
        self.length = bytearray(len(self.data).to_bytes(_LENGTH_BYTES, "little"))
        self.done_bytes = 0  # of length and data together
        self.sending = key[0] == dist.get_rank()

    def advance(self, ring: Ring) -> bool:
        """Move what can be moved now; tell whether the message is through."""
        step = ring.write if self.sending else ring.read
        total = _LENGTH_BYTES + len(self.data)
        while self.done_bytes < total:
            in_length = self.done_bytes < _LENGTH_BYTES
            part = memoryview(self.length) if in_length else self.data
            offset = self.done_bytes if in_length else self.done_bytes - _LENGTH_BYTES
            moved = step(part[offset:])
            self.done_bytes += moved
            if moved and self.done_bytes == _LENGTH_BYTES and not self.sending:
                self._check_length()
            if not moved:
                return False
        return True

    def _check_length(self) -> None:
        came = int.from_bytes(self.length, "little")
        if came != len(self.data):
            raise ValueError(
                f"rank {self.key[0]} sent {came} bytes, but rank {self.key[1]} receives into a "
                f"tensor of {len(self.data)} bytes: both must have the same size."
            )

    @property
    def through(self) -> bool:
        return self.done_bytes == _LENGTH_BYTES + len(self.data)

    def wait(self) -> None:
        for turn in itertools.count():
            _rings.progress()
            if self.through:
                return
            time.sleep(0 if turn < _YIELDS else _SLEEP_S)

    def is_completed(self) -> bool:
        _rings.progress()
        return self.through


class _Rings:
    """All rings of this process in its present group, and the messages on their way.

    They live as long as the group: a sender may be done before the receiver has opened its ring.
    """

    def __init__(self) -> None:
        self.store: Any = None
        self.rings: dict[tuple[int, int], Ring] = {}
        self.moves: dict[tuple[int, int], deque[_Move]] = {}
        self.descriptors: list[int] = []

    def start(self, move: _Move) -> None:
        """Queue a message and move what can be moved at once."""
        store = distributed_c10d._get_default_store()
        if store is not self.store:  # a new group: its ranks know nothing of the old rings
            self.close()
            self.store = store
        self.moves.setdefault(move.key, deque()).append(move)
        self.progress()

    def progress(self) -> None:
        """Move the bytes of every started message as far as they go now."""
        for key, moves in self.moves.items():
            ring = self._ring(key) if moves else None
            while ring is not None and moves and moves[0].advance(ring):
                moves.popleft()

    def _ring(self, key: tuple[int, int]) -> Ring | None:
        """Return the ring of a direction; None while its sender hasn't made it."""
        if key not in self.rings:
            place = f"course ring {key[0]}>{key[1]}"
            if key[0] == dist.get_rank():
                memory, path = self._create()
                self.store.set(place, path)
            elif self.store.check([place]):
                memory = _map(self.store.get(place).decode())
            else:
                return None
            self.rings[key] = Ring(memory)
        return self.rings[key]

    def _create(self) -> tuple[mmap.mmap, str]:
        size = _HEADER_BYTES + RING_BYTES
        if sys.platform.startswith("linux"):
            descriptor = os.memfd_create("course_ring", os.MFD_CLOEXEC)
            path = f"/proc/{os.getpid()}/fd/{descriptor}"
            self.descriptors.append(descriptor)
            os.ftruncate(descriptor, size)
            return mmap.mmap(descriptor, size), path
        descriptor, path = tempfile.mkstemp(prefix="course_ring_")
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        os.close(descriptor)
        return memory, path

    def close(self) -> None:
        """Let go of everything; the memory goes with the last mapping."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.__init__()  # type: ignore[misc]


_rings = _Rings()


class SharedMemoryLink:
    """The link to give to `links.over`; all of them in a process are one.

    Raises:
        ValueError: (on use) a tensor is not on the CPU, or the two sides' sizes differ.
    """

    name = "shared memory"

    def isend(self, tensor: Tensor, dst: int) -> _Move:
        """See links.Link."""
        return self._start(tensor, (dist.get_rank(), dst))

    def irecv(self, tensor: Tensor, src: int) -> _Move:
        """See links.Link."""
        return self._start(tensor, (src, dist.get_rank()))

    def _start(self, tensor: Tensor, key: tuple[int, int]) -> _Move:
        if tensor.device.type != "cpu":
            raise ValueError(
                f"a tensor on {tensor.device} can't go through shared memory: take .cpu() first."
            )
        move = _Move(tensor, key)
        _rings.start(move)
        return move


def _map(path: str) -> mmap.mmap:
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    if not path.startswith("/proc/") and sys.platform != "win32":
        os.unlink(path)  # both sides have it mapped: the name is not needed any more
    return memory
