"""Finds an exercise by its id: "08.3" lives in the module `ch08`."""

import importlib
import re
from importlib.resources import files

from course_lib.teach.checking.exercise import Exercise

_ID = re.compile(r"(\d\d)\.\d+")


def chapters() -> list[str]:
    """Return the numbers of the chapters that have exercises: ["00", "01", ...]."""
    names = (path.name for path in files(__package__).iterdir())
    return sorted(name[2:4] for name in names if re.fullmatch(r"ch\d\d\.py", name))


def of_chapter(chapter: str) -> list[Exercise]:
    """Return a chapter's exercises in order; [] for a chapter without any."""
    if chapter not in chapters():
        return []
    module = importlib.import_module(f"{__package__}.ch{chapter}")
    found = [value for value in vars(module).values() if isinstance(value, Exercise)]
    return sorted({exercise.id: exercise for exercise in found}.values(), key=lambda e: e.id)


def all_exercises() -> list[Exercise]:
    """Return every exercise of the course in order."""
    return [exercise for chapter in chapters() for exercise in of_chapter(chapter)]


def find(exercise_id: str) -> Exercise | None:
    """Return the exercise with this id, or None."""
    match = _ID.fullmatch(str(exercise_id))
    exercises = of_chapter(match.group(1)) if match else []
    return next((exercise for exercise in exercises if exercise.id == exercise_id), None)


def get(exercise_id: str) -> Exercise:
    """Return the exercise with this id.

    Raises:
        ValueError: there is none; the sentence names those of the chapter, or the chapters.
    """
    exercise = find(exercise_id)
    if exercise is None:
        raise ValueError(unknown(exercise_id))
    return exercise


def unknown(exercise_id: object) -> str:
    """Return the sentence that says which exercises exist."""
    match = _ID.fullmatch(str(exercise_id))
    near = [exercise.id for exercise in of_chapter(match.group(1))] if match else []
    near = near or [exercise.id for exercise in all_exercises()]
    return f"There is no exercise {exercise_id!r}; there are {', '.join(near)}."
