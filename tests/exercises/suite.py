"""What the tests know of an exercise: its cell in the chapter, and the answers written for tests.

The answers to chapter NN's exercises lie in `tests/exercises/chNN.py`:

    WRONG = {"08.3": [("name of the mistake", source, "a part of its message"), ...]}
    RIGHT = {"08.3": [("style", source), ...]}
    SURVIVORS = {"08.3": {"line 4: Lt became LtE": "why this mutant is right, or can't be told"}}
"""

import importlib
from dataclasses import dataclass
from functools import lru_cache

from course_lib.paths import course_folders
from course_lib.teach.blanks import answer_name, exercise_cells, solved_source, unmarked_solution
from course_lib.teach.chapters import load_chapters
from course_lib.teach.checking.exercise import Exercise
from course_lib.teach.checking.judge import SourceAnswer
from course_lib.teach.checking.prelude import prelude_for
from course_lib.teach.exercises import registry

EXERCISES = {exercise.id: exercise for exercise in registry.all_exercises()}


@dataclass(frozen=True)
class Cell:
    """An exercise's cell in its chapter: the answer's name, its solution, the cells before it."""

    name: str
    solution: str
    earlier: tuple[str, ...]

    def answer(self, source: str) -> SourceAnswer:
        """Return a text as an answer that stands at the exercise's place in the chapter."""
        return SourceAnswer(prelude_for(source, self.earlier), source, self.name)


@lru_cache(maxsize=1)
def cells() -> dict[str, Cell]:
    """Return every exercise cell of the chapters by exercise id."""
    found = {}
    for chapter in load_chapters(course_folders().chapters):
        code = [cell for cell in chapter.notebook.cells if cell.cell_type == "code"]
        sources = [solved_source(cell.source) for cell in code]
        positions = {cell.id: position for position, cell in enumerate(code)}
        for exercise, cell in exercise_cells(chapter).items():
            earlier = tuple(sources[: positions[cell.id]])
            found[exercise] = Cell(answer_name(cell), unmarked_solution(cell.source), earlier)
    return found


def wrong_answers(exercise: Exercise) -> list[tuple[str, str, str]]:
    """Return (name of the mistake, source, part of its message) triples."""
    return _written(exercise, "WRONG")


def right_answers(exercise: Exercise) -> list[tuple[str, str]]:
    """Return (style, source) pairs."""
    return _written(exercise, "RIGHT")


def explained_survivors(exercise: Exercise) -> dict[str, str]:
    """Return {mutant's label: why it is accepted}."""
    module = importlib.import_module(f"tests.exercises.ch{exercise.id[:2]}")
    return dict(getattr(module, "SURVIVORS", {}).get(exercise.id, {}))


def _written(exercise: Exercise, kind: str) -> list:
    module = importlib.import_module(f"tests.exercises.ch{exercise.id[:2]}")
    return list(getattr(module, kind).get(exercise.id, []))
