"""Start a run on any number of ranks from one process: the command line's and a notebook's way."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.config import TrainConfig
from course_lib.ranks import launch, runtime
from course_lib.train.events import Event, RunEnded
from course_lib.train.fit import fit
from course_lib.train.stop import StopSignal

_NO_LIMIT_S = 9e6  # a hundred days: training ends by its steps, not by the clock


def fit_on_ranks(
    config: TrainConfig,
    ranks: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> RunEnded:
    """Run `fit` here (1 rank) or on ranks that are started for it, and return how it ended.

    The first Ctrl-C lets the ranks end their step and leave a checkpoint; a second one, two seconds
    later or more, ends them at once.

    Args:
        config, out, resume, stop_after: as in `fit`.
        ranks: how many, 1 to 64.
        on_event: called here with rank 0's events (with several ranks: in another thread).

    Raises:
        UserError, RankError: as `launch` does.
    """
    if ranks == 1:
        return fit(config, out=out, resume=resume, stop_after=stop_after, on_event=on_event).result
    with tempfile.TemporaryDirectory() as folder, StopSignal() as stop:
        stop_file = Path(folder) / "stop"
        job = _Thread(
            lambda: launch(
                _fit_on_a_rank,
                (config, out, resume, stop_after, stop_file),
                world_size=ranks,
                timeout_s=_NO_LIMIT_S,
                device=config.device.partition(":")[0],
                on_event=lambda rank, event: on_event(event) if on_event else None,
            )
        )
        while job.running():
            if stop.requested():
                stop_file.touch()
        return job.result()[0]


def _fit_on_a_rank(arguments: tuple[Any, ...]) -> RunEnded:
    config, out, resume, stop_after, stop_file = arguments
    return fit(
        config,
        out=out,
        resume=resume,
        stop_after=stop_after,
        on_event=runtime.emit,
        stop_file=stop_file,
    ).result


class _Thread:
    """Runs a function in a thread, so that this one stays free to hear of Ctrl-C.

    A daemon: where the process ends, the thread does, and ranks end when their parent has gone.
    """

    def __init__(self, fn: Callable[[], Any]) -> None:
        self._fn = fn
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._fn()
        except BaseException as error:  # carried over to the thread that waits
            self._error = error

    def running(self, wait_s: float = 0.1) -> bool:
        """Wait a moment, and tell whether the function still runs."""
        self._thread.join(wait_s)
        return self._thread.is_alive()

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._value
