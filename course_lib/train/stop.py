"""Stopping early in good order: a Ctrl-C is noted, and all ranks stop at the end of the same step.

A rank that stopped by itself would leave the others waiting in the next all_reduce. So an
interrupt only raises a flag, and after each step the ranks ask one another whether any has one.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType

# torchrun passes an interrupt on that the terminal has already sent to everyone.
_SAME_INTERRUPT_S = 2.0


class StopSignal:
    """Notes Ctrl-C (and SIGTERM) while it is entered; a second Ctrl-C raises KeyboardInterrupt.

    Args:
        file: a second way to ask: a run stops once this file exists. Ranks that `launch` started
            get no Ctrl-C themselves; their parent makes the file.

    Only the main thread can take signals; elsewhere the file alone counts.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._first_s: float | None = None
        self._before: dict[int, object] = {}

    def requested(self) -> bool:
        """Tell whether this rank was asked to stop."""
        return self._first_s is not None or (self._file is not None and self._file.exists())

    def note(self, signum: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        """Handle a signal: the first one asks for a stop."""
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        elif signum == signal.SIGINT and now_s - self._first_s > _SAME_INTERRUPT_S:
            raise KeyboardInterrupt

    def __enter__(self) -> StopSignal:
        """Take over the signals."""
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._before[signum] = signal.signal(signum, self.note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        self._before = {}
