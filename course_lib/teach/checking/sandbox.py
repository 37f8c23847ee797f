"""Runs an answer in processes of its own: started fresh, limited, ended whatever they do."""

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.ranks import Outcome, payload, run_ranks
from course_lib.ranks.report import death_line
from course_lib.teach.checking.agreement import Agreement
from course_lib.teach.checking.exercise import Exercise
from course_lib.teach.checking.judge import (
    ANSWER_FILE,
    OutOfTime,
    SourceAnswer,
    error_text,
    judge,
    learners_line,
    steps_of,
    time_limit,
)
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
        waits: what each rank that can't go on waits in, in words, by rank.
        mismatch: calls that should have met but don't fit, in words; '' if there are none.
    """

    logs: list[Log]
    death: str = ""
    dead_rank: int = 0
    interrupted: bool = False
    waits: dict[int, str] = dataclasses.field(default_factory=dict)
    mismatch: str = ""


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
        if not isinstance(answer, SourceAnswer):
            payload.pack_call(answer, ())  # alone first: what can't be sent is then named
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
    exercise = _resolved(exercise)
    log = Log(_log_path(Path(folder), rank))
    answer = _loaded(answer, log, exercise.time_limit_s)
    if log.failure is not None:
        return
    agreement = Agreement(Path(folder) / "agreement", rank, world_size, steps_of(exercise))
    limit_memory(exercise.memory_limit_bytes)
    watchdog = Watchdog(log, agreement, exercise.time_limit_s, modules)
    judge(exercise, answer, log, modules, agreement)
    watchdog.stop()


def run_batch(
    exercise: Exercise, answers: Sequence[SourceAnswer], time_limit_s: float
) -> list[Log]:
    """Judge many answers one after another in one process: for tests, where starting costs most.

    An answer that kills the process, or that no alarm stops, is logged as such, and a new process
    goes on after it.

    Args:
        exercise: an exercise that needs no ranks.
        answers: the texts to judge.
        time_limit_s: for each of them.

    Raises:
        ValueError: the exercise runs on several ranks.
    """
    if exercise.ranks:
        raise ValueError(f"exercise {exercise.id} runs on ranks: judge its answers one by one")
    logs: list[Log] = []
    with tempfile.TemporaryDirectory(prefix="course-check-") as folder:
        while len(logs) < len(answers):
            first = len(logs)
            arguments = (_by_reference(exercise), list(answers), folder, first, time_limit_s)
            limit_s = START_LIMIT_S + time_limit_s * len(answers)
            outcome = run_ranks(judge_batch_on_rank, *arguments, world_size=1, timeout_s=limit_s)
            judged = outcome.results[0] if outcome.ok else _last_begun(folder, first) + 1
            logs += [Log.read(_log_path(Path(folder), index)) for index in range(first, judged)]
            if not outcome.ok and logs[-1].failure is None:
                came = "the answer's process had to be ended"
                logs[-1].failed_with(logs[-1].current or 0, {"kind": "crashed", "came": came})
    return logs


def judge_batch_on_rank(
    exercise: Exercise | str,
    answers: list[SourceAnswer],
    folder: str,
    first: int,
    time_limit_s: float,
) -> int:
    """Inside one process: judge the answers from `first` on; return how many are judged by then."""
    exercise = _resolved(exercise)
    limit_memory(exercise.memory_limit_bytes)
    for index in range(first, len(answers)):
        log = Log(_log_path(Path(folder), index))
        log.path.touch()  # type: ignore[union-attr]
        agreement_path = Path(folder) / f"agreement{index}"
        Agreement.create(agreement_path, 1, steps_of(exercise))
        agreement = Agreement(agreement_path, 0, 1, steps_of(exercise))
        watchdog = Watchdog(log, agreement, time_limit_s, ("__main__",))
        limited = dataclasses.replace(exercise, time_limit_s=time_limit_s)
        answer = _loaded(answers[index], log, time_limit_s)
        if log.failure is None:
            judge(limited, answer, log, ("__main__",), agreement)
        watchdog.stop()
    return len(answers)


def _last_begun(folder: str, first: int) -> int:
    index = first
    while _log_path(Path(folder), index + 1).exists():
        index += 1
    return index


def _loaded(answer: Any, log: Log, time_limit_s: float) -> Any:
    """Return a SourceAnswer's object, any other as it is; a cell that fails is logged."""
    if not isinstance(answer, SourceAnswer):
        return answer
    try:
        with time_limit(time_limit_s):
            return answer.load()
    except OutOfTime:
        came = f"the cell is still running after {time_limit_s:g} s"
        log.failed_with(-1, {"kind": "timeout", "came": came})
    except BaseException as error:
        log.failed_with(-1, {"kind": "raised", "came": error_text(error), "line": _line(error)})
    return None


def _line(error: BaseException) -> tuple[str, int] | None:
    if isinstance(error, SyntaxError) and error.lineno:
        return ANSWER_FILE, error.lineno
    return learners_line(error, ("__main__",))


def _resolved(exercise: Exercise | str) -> Exercise:
    if isinstance(exercise, Exercise):
        return exercise
    from course_lib.teach.exercises import registry

    return registry.get(exercise)


def _ended(outcome: Outcome, logs: list[Log]) -> Ended:
    """Find out whether a rank ended in a way that its log can't tell."""
    if outcome.interrupted:
        return Ended(logs, interrupted=True)
    for stuck in outcome.stuck:  # seen by the parent, before our own watchdogs
        place = outcome.ranks[stuck.rank].where
        logs[stuck.rank].stuck_at = {"kind": "deadlock", "line": _cell_line(place)}
    waits = dict(outcome.waits)
    waits |= {stuck.rank: stuck.operation for stuck in outcome.stuck}
    first, death, rank = outcome.first_failure, "", 0
    if first is not None:
        rank = first.rank
        error = first.error
        death = f"{error['type']}: {error['message']}" if error else death_line(first.exit_code)
    elif outcome.timed_out:
        death = "compiled code that never lets go"
    return Ended(logs, death, rank, waits=waits, mismatch=outcome.mismatch or "")


def _cell_line(frames: list[dict[str, Any]]) -> tuple[str, int] | None:
    """Return (file, line) of the innermost frame whose code lies in no file: a notebook's cell."""
    cells = [frame for frame in frames if not Path(frame["file"]).is_file()]
    return (cells[-1]["file"], cells[-1]["line"]) if cells else None


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
