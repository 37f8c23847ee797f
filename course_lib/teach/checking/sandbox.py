"""Runs an answer in processes of its own: started fresh, limited, ended whatever they do."""

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.ranks import Outcome, run_ranks
from course_lib.ranks.report import death_line
from course_lib.teach.checking.agreement import Agreement
from course_lib.teach.checking.exercise import Exercise
from course_lib.teach.checking.judge import SourceAnswer, error_text, judge, steps_of
from course_lib.teach.checking.log import Log
from course_lib.teach.checking.watchdog import Watchdog

# Each rank watches its own time. This is for one that can't, and for the first start's imports.
START_LIMIT_S = 60.0


@dataclass(frozen=True)
class Ended:
    """How the ranks of one run ended.

    Args:
        logs: one for each rank, in rank order.
        death: what happened to the first rank that died without a word; '' if none did.
        dead_rank: that rank.
        interrupted: whether the learner interrupted it.
    """

    logs: list[Log]
    death: str = ""
    dead_rank: int = 0
    interrupted: bool = False


def run(
    exercise: Exercise,
    answer: Any,
    world_size: int,
    modules: tuple[str, ...] = ("__main__",),
) -> Ended:
    """Judge an answer on `world_size` fresh ranks; never raises for what the answer does.

    Args:
        exercise: what to try.
        answer: the learner's object, or a SourceAnswer.
        world_size: number of processes, 1 or more.
        modules: names of modules whose code is the learner's.

    Raises:
        UserError: the answer can't be sent to another process; what can't is named.
    """
    folder = Path(tempfile.mkdtemp(prefix="course-check-"))
    try:
        Agreement.create(folder / "agreement", world_size, steps_of(exercise))
        outcome = run_ranks(
            judge_on_rank,
            _by_reference(exercise),
            answer,
            str(folder),
            modules,
            world_size=world_size,
            timeout_s=exercise.time_limit_s + START_LIMIT_S,
        )
        logs = [Log.read(_log_path(folder, rank)) for rank in range(world_size)]
        return _ended(outcome, logs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge_on_rank(
    exercise: Exercise | str, answer: Any, folder: str, modules: tuple[str, ...]
) -> None:
    """Inside a rank: load the answer and judge it, logging to `folder`."""
    from course_lib.ranks import runtime

    rank, world_size = runtime.rank(), runtime.world_size()
    if isinstance(exercise, str):
        from course_lib.teach.exercises import registry

        exercise = registry.get(exercise)
    log = Log(_log_path(Path(folder), rank))
    if isinstance(answer, SourceAnswer):
        try:
            answer = answer.load()
        except BaseException as error:
            log.failed_with(-1, {"kind": "raised", "came": error_text(error)})
            return
    agreement = Agreement(Path(folder) / "agreement", rank, world_size, steps_of(exercise))
    limit_memory(exercise.memory_limit_bytes)
    watchdog = Watchdog(log, agreement, exercise.time_limit_s, modules)
    judge(exercise, answer, log, modules, agreement)
    watchdog.stop()


def _ended(outcome: Outcome, logs: list[Log]) -> Ended:
    """Find out whether a rank ended in a way that its log can't tell."""
    if outcome.interrupted:
        return Ended(logs, interrupted=True)
    first = outcome.first_failure
    if first is not None and first.error is None:
        return Ended(logs, death_line(first.exit_code), first.rank)
    if first is not None and first.error is not None:
        return Ended(logs, f"{first.error['type']}: {first.error['message']}", first.rank)
    if outcome.timed_out:
        return Ended(logs, "compiled code that never lets go", 0)
    return Ended(logs)


def limit_memory(size_bytes: int) -> None:
    """Let this process allocate at most `size_bytes` more; does nothing where that can't be set."""
    with contextlib.suppress(ImportError, OSError, ValueError, StopIteration):
        import resource

        with open("/proc/self/status", encoding="ascii") as file:
            used_kib = next(int(line.split()[1]) for line in file if line.startswith("VmData"))
        limit = used_kib * 1024 + size_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _by_reference(exercise: Exercise) -> Exercise | str:
    """Send the id of a course's exercise, and any other exercise as it is."""
    from course_lib.teach.exercises import registry

    return exercise.id if registry.find(exercise.id) is exercise else exercise


def _log_path(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.jsonl"
