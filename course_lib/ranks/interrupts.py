"""Interrupts (Ctrl-C, the notebook's stop button) taken at a moment of our choosing.

While ranks are started, watched and ended, an interrupt must not strike between two lines: it is
noted, wakes the wait, and is raised when nothing is left behind. A second one changes nothing.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType


class InterruptGate:
    """Notes interrupts; `wake` becomes readable when one has come."""

    def __init__(self) -> None:
        self.interrupted = False
        self.wake, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)

    def note(self, signal_number: int = 0, frame: FrameType | None = None) -> None:
        """Handle SIGINT: remember it and wake whoever waits."""
        self.interrupted = True
        with contextlib.suppress(OSError):
            self._wake_write.send(b"i")

    def close(self) -> None:
        """Release the descriptors."""
        self.wake.close()
        self._wake_write.close()


@contextlib.contextmanager
def held_interrupts() -> Iterator[InterruptGate]:
    """Hold back interrupts for the block; the caller asks the gate and raises afterwards.

    Only the main thread receives signals; in another the gate stays quiet.
    """
    gate = InterruptGate()
    previous = None
    if threading.current_thread() is threading.main_thread():
        current = signal.getsignal(signal.SIGINT)
        if callable(current):
            previous = current
            signal.signal(signal.SIGINT, gate.note)
    try:
        yield gate
    finally:
        if previous is not None:
            signal.signal(signal.SIGINT, previous)
        gate.close()
