"""`check`: is this answer right? Blank, right or wrong, it returns a result and never raises."""

from typing import Any

from course_lib.errors import UserError
from course_lib.teach.checking import sandbox, source
from course_lib.teach.checking.exercise import Exercise
from course_lib.teach.checking.judge import ANSWER_FILE, SourceAnswer, error_text, judge
from course_lib.teach.checking.log import Log
from course_lib.teach.checking.result import CheckResult, Failure, Mark

_WANTED = {"function": "a function", "class": "a class", "value": "a value"}


_ALL_WAIT = "Some rank must send what another is waiting for, in an order that can begin."
_ONE_LEFT = "Every recv needs its send, and in a collective every rank must take part."


def check_answer(exercise: Exercise, answer: Any) -> CheckResult:
    """Check an object from the learner's kernel.

    Args:
        exercise: what to check it against.
        answer: a function, a class or a value.

    Returns:
        The result; "blank" when the answer is still the recorded stub.
    """
    if source.is_blank(answer, source.blanks().get(exercise.id)):
        return blank_result(exercise)
    try:
        misfit = _misfit(exercise, answer)
        if misfit:
            return _failed(exercise, [], Failure("wrong", misfit[1], misfit[0]))
        if exercise.kind == "value":
            log = Log()
            judge(exercise, answer, log)
            return _result(exercise, {1: [log]}, "", "")
        cell, file = source.cell_of(answer)
        return _check_in_sandbox(exercise, answer, _modules_of(answer), cell, file)
    except Exception as error:  # a check never raises: a learner can do nothing about ours
        failure = Failure("crashed", f"the check itself failed with {error_text(error)}")
        return _failed(exercise, [], failure)


def check_source(exercise: Exercise, answer: SourceAnswer) -> CheckResult:
    """Check an answer that is the text of a cell, without running it in this process.

    Args:
        exercise: what to check it against.
        answer: the cell, the definitions before it, and the answer's name.
    """
    blank = source.blanks().get(exercise.id)
    if source.is_blank_source(answer.source, answer.name, blank):
        return blank_result(exercise)
    return _check_in_sandbox(exercise, answer, ("__main__",), answer.source, ANSWER_FILE)


def check_sources(
    exercise: Exercise, answers: list[SourceAnswer], time_limit_s: float = 2.0
) -> list[CheckResult]:
    """Check many texts, without a look at whether they are blank; in one process where that can be.

    Args:
        exercise: what to check them against.
        answers: the texts.
        time_limit_s: for each answer, where they share a process.
    """
    if exercise.ranks:
        return [
            _check_in_sandbox(exercise, answer, ("__main__",), answer.source, ANSWER_FILE)
            for answer in answers
        ]
    logs = sandbox.run_batch(exercise, answers, time_limit_s)
    return [
        _result(exercise, {1: [log]}, answer.source, ANSWER_FILE)
        for log, answer in zip(logs, answers, strict=True)
    ]


def blank_result(exercise: Exercise) -> CheckResult:
    """Return the result of an answer that is still the stub."""
    message = "Write your answer in the cell above, run it, then run this cell again."
    return CheckResult(exercise.id, exercise.title, "blank", message=message)


def _check_in_sandbox(
    exercise: Exercise, answer: Any, modules: tuple[str, ...], cell: str, file: str
) -> CheckResult:
    runs: dict[int, list[Log]] = {}
    failure: Failure | None = None
    for world_size in exercise.ranks or (1,):
        try:
            ended = sandbox.run(exercise, answer, world_size, modules)
        except UserError as error:
            return _failed(exercise, [], Failure("unsendable", str(error)))
        runs[world_size] = ended.logs
        failure = _sudden_end(exercise, ended, cell, file)
        if failure or any(log.failure for log in ended.logs):
            break
    return _result(exercise, runs, cell, file, failure)


def _result(
    exercise: Exercise,
    runs: dict[int, list[Log]],
    cell: str,
    file: str,
    sudden: Failure | None = None,
) -> CheckResult:
    """Put the logs of all world sizes together; the last one holds the failure, if there is one."""
    world_size, logs = list(runs.items())[-1]
    failed, failure, printed = None, sudden, ""
    broken = [
        (bool(log.failure.get("consequence")), log.failed, rank)
        for rank, log in enumerate(logs)
        if log.failure
    ]
    if broken and sudden is None:
        _, failed, rank = min(broken)
        failure = _failure(logs[rank], rank, world_size, cell, file)
        printed = (logs[rank].failure or {}).get("printed", "")
    elif sudden:
        running = [at for log in logs for at in (log.current, log.failed) if at is not None]
        failed = min(running, default=None)
    if failure is None and not _all_held(exercise, runs):
        failure = Failure("crashed", "the answer ended before all properties were tried")
    if failure is None:
        lines = [("ok", prop.text) for prop in exercise.properties]
        return CheckResult(exercise.id, exercise.title, "passed", tuple(lines))  # type: ignore[arg-type]
    if failed == -1:
        failed = None
    marks: list[Mark] = []
    for index in range(len(exercise.properties)):
        before = failed is not None and index < failed
        marks.append("wrong" if index == failed else "ok" if before else "not tried")
    return _failed(exercise, marks, failure, printed)


def _all_held(exercise: Exercise, runs: dict[int, list[Log]]) -> bool:
    """Tell whether every rank logged every property: silence is never a pass."""
    for world_size, logs in runs.items():
        indices = [
            index
            for index, prop in enumerate(exercise.properties)
            if not prop.ranks or world_size in prop.ranks
        ]
        if any(log.passed != indices for log in logs):
            return False
    return True


def _failed(
    exercise: Exercise, marks: list[Mark], failure: Failure, printed: str = ""
) -> CheckResult:
    lines = tuple((mark, prop.text) for mark, prop in zip(marks, exercise.properties, strict=False))
    return CheckResult(exercise.id, exercise.title, "failed", lines, failure, printed=printed)


def _failure(log: Log, rank: int, world_size: int, cell: str, file: str) -> Failure:
    fields = log.failure or {}
    line = fields.get("line")
    return Failure(
        kind=fields["kind"],
        came=fields["came"],
        expected=fields.get("expected", ""),
        likely=fields.get("likely", ""),
        where=_where(fields.get("case", ""), rank, world_size),
        line=source.describe_line(tuple(line) if line else None, file, cell),
    )


def _where(case: str, rank: int, world_size: int) -> str:
    on_rank = f"rank {rank} of {world_size}" if world_size > 1 else ""
    return ", ".join(part for part in (case, on_rank) if part)


def _sudden_end(exercise: Exercise, ended: sandbox.Ended, cell: str, file: str) -> Failure | None:
    """Return the failure of ranks that had to be ended or that died; None otherwise."""
    if any(log.failure and not log.failure.get("consequence") for log in ended.logs):
        return None
    world_size = len(ended.logs)
    case = next((log.current_case for log in ended.logs if log.current is not None), "")
    stuck = [(rank, log.stuck_at) for rank, log in enumerate(ended.logs) if log.stuck_at]
    if ended.interrupted:
        return Failure("interrupted", "you interrupted it", where=case)
    if stuck and any(at["kind"] == "deadlock" for _, at in stuck):
        where = ", ".join(part for part in (case, f"{world_size} ranks") if part)
        all_in_answer = all(at["line"] for _, at in stuck)
        return Failure(
            "deadlock",
            "a deadlock: the ranks wait for each other, and none can go on",
            where=where,
            details=_who_waits(ended, cell, file),
            likely=_ALL_WAIT if len(stuck) == world_size and all_in_answer else _ONE_LEFT,
        )
    if stuck:
        rank, at = stuck[0]
        line = source.describe_line(tuple(at["line"]) if at["line"] else None, file, cell)
        came = f"still running after {exercise.time_limit_s:g} s"
        return Failure("timeout", came, where=_where(case, rank, world_size), line=line)
    if ended.death:
        return Failure("crashed", ended.death, where=_where(case, ended.dead_rank, world_size))
    return None


def _who_waits(ended: sandbox.Ended, cell: str, file: str) -> tuple[str, ...]:
    """Return a line for each rank: what it waits in and where, or that its part has ended."""
    lines = []
    for rank, log in enumerate(ended.logs):
        if log.stuck_at is None:
            lines.append(f"rank {rank} waits for nothing")
            continue
        at = log.stuck_at
        line = source.describe_line(tuple(at["line"]) if at["line"] else None, file, cell)
        if line:
            operation = f" in {ended.waits[rank]}" if rank in ended.waits else ""
            lines.append(f"rank {rank} waits{operation}, {line}")
        else:
            lines.append(f"rank {rank} has finished its part")
    return (*lines, ended.mismatch) if ended.mismatch else tuple(lines)


def _misfit(exercise: Exercise, answer: Any) -> tuple[str, str] | None:
    """Return (expected, came) when the answer isn't of the exercise's kind at all."""
    from course_lib.teach.checking.expect import describe

    wanted = _WANTED[exercise.kind]
    if exercise.kind == "class" and not isinstance(answer, type):
        return wanted, describe(answer)
    if exercise.kind == "function" and not callable(answer):
        return wanted, describe(answer)
    if exercise.kind == "value" and callable(answer):
        return f"{wanted} (a number or a list, say)", "a function or class"
    return None


def _modules_of(answer: Any) -> tuple[str, ...]:
    module = getattr(answer, "__module__", "") or ""
    own = module.split(".")[0] not in ("course_lib", "torch", "builtins", "functools", "")
    return tuple({"__main__": 0, module: 0}) if own else ("__main__",)
