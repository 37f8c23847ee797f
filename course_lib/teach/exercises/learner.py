"""What a learner calls in a notebook: `check`, `hint`, `solution`."""

from html import escape
from typing import Any

from course_lib.teach.checking import progress
from course_lib.teach.checking.result import CheckResult
from course_lib.teach.exercises import registry


class Text:
    """Text that shows itself in a notebook, without quotes."""

    def __init__(self, text: str, *, code: bool = False) -> None:
        self.text, self.code = text, code

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        style = "white-space:pre" if self.code else "white-space:pre-wrap"
        tag = "pre" if self.code else "div"
        return f"<{tag} style='{style}'>{escape(self.text)}</{tag}>"


def check(exercise_id: str, answer: Any) -> CheckResult:
    """Check an answer: one line for each property, and for the first that fails what is wrong.

    Args:
        exercise_id: chapter and number, "00.1".
        answer: your function, class or value; a blank is told as "not attempted yet".

    Returns:
        The result, which shows itself; `.passed` tells whether all properties hold. It never
        raises: an exercise that doesn't exist gives a result too.
    """
    from course_lib.teach.checking.checker import check_answer

    exercise = registry.find(exercise_id)
    if exercise is None:
        message = registry.unknown(exercise_id)
        return CheckResult(str(exercise_id), "", "unknown", message=message)
    result = check_answer(exercise, answer)
    if result.status != "blank":
        progress.attempted(exercise.id, result.passed)
    return result


def hint(exercise_id: str) -> Text:
    """Show the next hint and those before it; each call shows one more.

    Args:
        exercise_id: chapter and number, "00.1".
    """
    exercise = registry.find(exercise_id)
    if exercise is None:
        return Text(registry.unknown(exercise_id))
    total = len(exercise.hints)
    if total == 0:
        return Text(f"{exercise.id} has no hints.")
    shown = progress.hinted(exercise.id, total)
    lines = [f"hint {i + 1} of {total}: {text}" for i, text in enumerate(exercise.hints[:shown])]
    if shown == total:
        lines.append(
            f'That was the last; after a try of your own, solution("{exercise.id}") helps.'
        )
    return Text("\n".join(lines))


def solution(exercise_id: str) -> Text:
    """Show the recorded solution, once an answer of your own has been checked.

    Args:
        exercise_id: chapter and number, "00.1".
    """
    from course_lib.teach.checking.source import blanks

    exercise = registry.find(exercise_id)
    if exercise is None:
        return Text(registry.unknown(exercise_id))
    if not progress.of(exercise.id).attempts:
        return Text(
            f'Try it yourself first: check("{exercise.id}", ...) with an answer of your own, right '
            f'or wrong, then call this again. hint("{exercise.id}") gives a nudge.'
        )
    blank = blanks().get(exercise.id)
    if blank is None:
        return Text(f"The solution of {exercise.id} is not recorded: run `course build`.")
    return Text(blank.solution.strip(), code=True)
