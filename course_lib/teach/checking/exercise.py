"""What an exercise is: its text for the learner and the properties that its answer must have.

`course_lib.teach.exercises` explains how to write one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["function", "class", "value"]

TIME_LIMIT_S = 5.0
MEMORY_LIMIT_BYTES = 2 << 30


@dataclass(frozen=True)
class Property:
    """One thing that an answer must do, tried on one or more cases.

    Args:
        text: what is true of a right answer, as a line the learner reads.
        test: called with (answer) or, where there are cases, with (answer, case); raises `Wrong`.
        cases: label -> what `test` gets; empty for a single try.
        likely: the likely mistake, said where a failure names none of its own.
        ranks: world sizes it runs at; empty for all of the exercise's.
    """

    text: str
    test: Callable[..., None]
    cases: Mapping[str, Any] = field(default_factory=dict)
    likely: str = ""
    ranks: tuple[int, ...] = ()


@dataclass
class Exercise:
    """An exercise: what is asked, what a right answer does, what it may not call.

    Args:
        id: chapter and number, "08.3".
        title: a few words in the imperative, as the chapter's heading has them.
        kind: what the answer is: a "function", a "class", or a "value" (a number, a list).
        hints: from a nudge to nearly all; shown one at a time.
        forbidden: dotted names the answer may not reach, see `checking.forbidden`.
        ranks: world sizes to run at, each on real ranks; empty for one plain process.
        time_limit_s: seconds that all properties together may take, at each world size.
        memory_limit_bytes: what the answer's process may allocate beyond its start.
    """

    id: str
    title: str
    kind: Kind = "function"
    hints: Sequence[str] = ()
    forbidden: Sequence[str] = ()
    ranks: tuple[int, ...] = ()
    time_limit_s: float = TIME_LIMIT_S
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    properties: list[Property] = field(default_factory=list)

    def property(
        self,
        text: str,
        *,
        cases: Mapping[str, Any] | Sequence[Any] = (),
        likely: str = "",
        ranks: tuple[int, ...] = (),
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that adds its function as the next property.

        Args:
            text: what is true of a right answer, as a line the learner reads.
            cases: label -> case, or a sequence of cases that label themselves (numbers, strings).
            likely: the likely mistake, said where a failure names none of its own.
            ranks: world sizes, where not all of the exercise's.

        Raises:
            ValueError: when `ranks` holds a size that the exercise doesn't run at.
        """
        if not set(ranks) <= set(self.ranks):
            raise ValueError(f"exercise {self.id} runs at ranks {self.ranks}, not at {ranks}")
        labelled = cases if isinstance(cases, Mapping) else {str(case): case for case in cases}

        def add(test: Callable[..., None]) -> Callable[..., None]:
            self.properties.append(Property(text, test, dict(labelled), likely, tuple(ranks)))
            return test

        return add
