"""What runs inside an answer's own process, once on each rank: the properties, one after another.

Every step is written to a log that outlives the process, so that a killed or deadlocked answer
still tells which property was under way. All ranks agree on each property's outcome before they
begin the next: the first failure is then the same one on every run.
"""

import ast
import contextlib
import io
import linecache
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from course_lib.ranks import runtime
from course_lib.ranks.report import is_consequence
from course_lib.ranks.supervise import RankOutcome
from course_lib.ranks.worker import describe_error
from course_lib.teach.checking.agreement import Agreement
from course_lib.teach.checking.exercise import Exercise, Property
from course_lib.teach.checking.expect import Wrong
from course_lib.teach.checking.forbidden import ForbiddenCall, Watch
from course_lib.teach.checking.log import Log

ANSWER_FILE = "<answer>"
PRINTED_CHARACTERS = 2000


class OutOfTime(BaseException):
    """The alarm rang while an answer ran; no `except Exception` of the learner's stops it."""


@dataclass(frozen=True)
class SourceAnswer:
    """An answer as text: what a notebook's cell says, run in a namespace of its own.

    Args:
        prelude: imports and definitions of the cells before it; a statement that fails is skipped.
        source: the cell.
        name: the name that the cell gives to the answer.
    """

    prelude: str
    source: str
    name: str

    def load(self) -> Any:
        """Run the text and return the answer.

        Raises:
            Exception: what the cell raises; NameError where it doesn't define the name.
        """
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for statement in ast.parse(self.prelude).body:
            with contextlib.suppress(Exception):
                exec(compile(ast.Module([statement], []), "<prelude>", "exec"), namespace)
        lines = self.source.splitlines(keepends=True)
        linecache.cache[ANSWER_FILE] = (len(self.source), None, lines, ANSWER_FILE)
        exec(compile(self.source, ANSWER_FILE, "exec"), namespace)
        if self.name not in namespace:
            raise NameError(f"the cell does not define {self.name}")
        return namespace[self.name]


def judge(
    exercise: Exercise,
    answer: Any,
    log: Log,
    modules: tuple[str, ...] = ("__main__",),
    agreement: Agreement | None = None,
) -> None:
    """Try every property until one fails; write what happens to `log`.

    Args:
        exercise: what to try.
        answer: the learner's function, class or value.
        log: where starts, ends and the failure go.
        modules: names of modules whose code is the learner's.
        agreement: how ranks agree; None for a single process.
    """
    world_size = agreement.world_size if agreement else 1
    deadline = time.monotonic() + exercise.time_limit_s
    step = 0
    for index, prop in enumerate(exercise.properties):
        cases = prop.cases or {"": None}
        if prop.ranks and world_size not in prop.ranks:
            step += len(cases)
            continue
        log.start(index)
        for label, case in cases.items():
            log.case(label)
            arguments = (answer, case) if prop.cases else (answer,)
            if agreement:  # a process of its own: a kernel's random numbers are left alone
                runtime.set_seed(0)
            failure = _try_case(exercise, prop, arguments, modules, deadline)
            if failure is not None:
                log.failed_with(index, {**failure, "case": label})
            ok = failure is None
            if not (agreement.all_ok(step, ok) if agreement else ok):
                return
            step += 1
        log.held(index)


def steps_of(exercise: Exercise) -> int:
    """Return how many cases the exercise's properties have together."""
    return sum(max(1, len(prop.cases)) for prop in exercise.properties)


def _try_case(
    exercise: Exercise,
    prop: Property,
    arguments: tuple[Any, ...],
    modules: tuple[str, ...],
    deadline: float,
) -> dict[str, Any] | None:
    """Run one property on one case; return the failure's fields, or None."""
    watch = Watch(exercise.forbidden, modules)
    left_s = max(0.01, deadline - time.monotonic())
    printed = io.StringIO()
    try:
        with _quiet(printed), time_limit(left_s), watch.watching():
            watch.refuse_itself(arguments[0])
            run_property(prop.test, arguments)
    except BaseException as error:
        fields = _explain(error, prop, modules, exercise)
        return {**fields, "printed": printed.getvalue()[:PRINTED_CHARACTERS]}
    return None


def run_property(test: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Call the property; the name marks on the stack where a learner's calls may begin."""
    test(*arguments)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after `seconds`, where the system has such an alarm."""
    on_main = threading.current_thread() is threading.main_thread()
    if not (on_main and hasattr(signal, "setitimer")):
        yield
        return

    def ring(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _quiet(printed: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        yield


def _explain(
    error: BaseException, prop: Property, modules: tuple[str, ...], exercise: Exercise
) -> dict[str, Any]:
    """Return the failure's fields: kind, expected, came, likely, line."""
    line = learners_line(error, modules)
    if isinstance(error, Wrong):
        likely = error.likely or prop.likely
        return {"kind": "wrong", "expected": error.expected, "came": error.came, "likely": likely}
    if isinstance(error, ForbiddenCall):
        return {
            "kind": "forbidden",
            "expected": "your own code",
            "came": f"a call of {error.name}",
            "likely": "That is what this exercise asks you to build: write it out yourself.",
            "line": error.line,
        }
    if isinstance(error, OutOfTime):
        return {
            "kind": "timeout",
            "came": f"still running after {exercise.time_limit_s:g} s",
            "likely": "A loop that never ends? Look at what should stop it.",
            "line": line,
        }
    fields = {
        "kind": "raised",
        "came": error_text(error),
        "likely": prop.likely,
        "line": line,
        "consequence": is_consequence(RankOutcome(0, error=describe_error(error))),
    }
    if _is_out_of_memory(error):
        size_gib = exercise.memory_limit_bytes / 2**30
        fields["came"] = f"it asked for more than the {size_gib:g} GiB of memory that it may take"
        fields["likely"] = "Look at the sizes of the tensors that you make."
    return fields


def error_text(error: BaseException) -> str:
    """Return "TypeName: first line of the message", without addresses."""
    message = (str(error).strip().splitlines() or [""])[0]
    message = re.sub(r"0x[0-9a-fA-F]{6,}", "0x...", message)[:200]
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def learners_line(error: BaseException, modules: tuple[str, ...]) -> tuple[str, int] | None:
    """Return (file, line) of the innermost frame of the learner's code, or None."""
    found = None
    for frame, line_number in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") in modules:
            found = (frame.f_code.co_filename, line_number)
    return found


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )
