"""What a notebook shows when ranks go wrong, and how soon: the table of faults.

    python -m course_lib.bench._fault_table

Each case is something that a learner's code does to its ranks. The table has what is shown first,
the seconds to the end, and what was left behind. The tests hold the same cases to what they must
show; here they are timed.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from course_lib.bench import _faults


@dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
        name: in words.
        fn: what the ranks run.
        shows: the first line of the error, or a part of it; "" where there is none.
        args: the function's arguments.
        world_size: how many ranks.
        timeout_s: the time limit in seconds.
        interrupts_s: when the notebook's interrupts come, in seconds after the start.
    """

    name: str
    fn: Callable[..., Any]
    shows: str
    args: tuple[Any, ...] = ()
    world_size: Any = 4
    timeout_s: float = 60.0
    interrupts_s: tuple[float, ...] = field(default=())


_INTERRUPTED = "interrupted: 4 ranks ended, none is left"
CASES = [
    Case(
        "an exception on one rank",
        _faults.raises_on_one,
        "rank 1 failed: ValueError: the width is 7",
    ),
    Case(
        "an exception on all ranks",
        _faults.raises_on_all,
        "rank 0 failed: KeyError: 'learning_rate'",
    ),
    Case(
        "after the last barrier", _faults.raises_at_the_end, "rank 2 failed: RuntimeError: too late"
    ),
    Case("sys.exit(3)", _faults.exits, "rank 3 failed: SystemExit: sys.exit(3) was called"),
    Case(
        "SIGKILL",
        _faults.is_killed,
        "rank 1 failed: killed by SIGKILL (often the system ran out of",
    ),
    Case("SIGSEGV", _faults.crashes, "rank 1 failed: killed by SIGSEGV (a crash in compiled code)"),
    Case("an endless loop", _faults.never_ends, "the ranks did not end within 1 s", timeout_s=1.0),
    Case(
        "different collectives", _faults.different_collectives, "ranks 0, 1, 2 and 3 wait for ever"
    ),
    Case(
        "different sizes",
        _faults.different_sizes,
        "the calls don't fit: rank 0 called all_reduce (float32[1000]), "
        "rank 1 called all_reduce (float32[2000])",
    ),
    Case("one rank stays away", _faults.one_stays_away, "ranks 0, 2 and 3 wait for ever"),
    Case("everyone receives first", _faults.all_receive_first, "ranks 0, 1, 2 and 3 wait for ever"),
    Case("everyone sends first", _faults.all_send_first, "ranks 0, 1, 2 and 3 wait for ever"),
    Case("an interrupt at the start", _faults.all_send_first, _INTERRUPTED, interrupts_s=(0.0,)),
    Case(
        "an interrupt while they join", _faults.all_send_first, _INTERRUPTED, interrupts_s=(0.03,)
    ),
    Case("two interrupts", _faults.all_send_first, _INTERRUPTED, interrupts_s=(0.4, 0.401)),
    Case(
        "a result that can't be sent",
        _faults.returns_a_lock,
        "rank 0 failed: TypeError: the result (lock) can't be sent back",
    ),
    Case(
        "an argument that can't be sent",
        _faults.says_who_it_is,
        "argument 1 (lock) can't be sent to a rank",
        args=(threading.Lock(),),
    ),
    Case("a result of 200 MB", _faults.returns_200_mb, ""),
    Case("200,000 lines from each rank", _faults.prints_200000_lines, ""),
    Case(
        "world_size 0", _faults.says_who_it_is, "world_size is 0: give a whole number", world_size=0
    ),
    Case(
        "world_size -1",
        _faults.says_who_it_is,
        "world_size is -1: give a whole number",
        world_size=-1,
    ),
    Case(
        "world_size 'four'",
        _faults.says_who_it_is,
        "world_size is 'four': give a",
        world_size="four",
    ),
    Case("world_size 1", _faults.says_who_it_is, "", world_size=1),
    Case("world_size 16", _faults.says_who_it_is, "", world_size=16),
    Case("launch inside launch", _faults.launches_again, "launch was called inside rank 0"),
    Case("threads and processes of its own", _faults.starts_others, ""),
]


def try_case(case: Case) -> tuple[str, float]:
    """Run a case as a notebook would; return the first line shown ("" if none) and the seconds."""
    from course_lib.ranks import launch

    timers = [
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT))
        for delay_s in case.interrupts_s
    ]
    shown = ""
    start_s = time.perf_counter()
    try:
        for timer in timers:
            timer.start()
        launch(
            case.fn,
            *case.args,
            world_size=case.world_size,
            timeout_s=case.timeout_s,
            quiet=not case.interrupts_s,
        )
    except KeyboardInterrupt:
        shown = _INTERRUPTED if case.interrupts_s else "KeyboardInterrupt"
    except Exception as error:
        shown = str(error).splitlines()[0]
    time_s = time.perf_counter() - start_s
    if timers:  # on a busy machine the last interrupt may come when the launch is over
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGINT, handler)
    return shown, time_s


def left_behind(before: set[int]) -> list[str]:
    """Return the command lines of processes below this one that were not there before."""
    import psutil

    left = []
    for child in psutil.Process().children(recursive=True):
        if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE:
            left.append(" ".join(child.cmdline()))
    return left


def fault_table() -> list[dict[str, str]]:
    """Try every fault once; return what was shown first, the seconds, and what was left."""
    import psutil

    from course_lib.ranks import launch

    importlib.import_module("torch")  # as a notebook has: a tensor that comes back needs it
    launch(_faults.says_who_it_is)  # starts what ranks are forked from, which stays
    time.sleep(3.0)  # it loads the rest of torch while it is idle
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    rows = []
    for case in CASES:
        shown, time_s = try_case(case)
        time.sleep(0.3)
        left = left_behind(before)
        if descriptors and len(os.listdir("/proc/self/fd")) > descriptors:
            left.append("descriptors")
        rows.append(
            {
                "case": case.name,
                "shown first": shown or "(the results)",
                "seconds": f"{time_s:.2f}",
                "left": ", ".join(left) or "nothing",
            }
        )
    return rows


def main() -> None:
    """Print the table in Markdown."""
    rows = fault_table()
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + " --- |" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(row.values()) + " |")


if __name__ == "__main__":
    main()
