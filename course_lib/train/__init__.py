"""The loop: one step of six stages, and the run that repeats it."""

from course_lib.train.events import (
    CheckpointSaved,
    Evaluated,
    Event,
    RunEnded,
    RunStarted,
    StepDone,
)
from course_lib.train.fit import Run, fit
from course_lib.train.step import STAGES, StageClock, train_step

__all__ = [
    "STAGES",
    "CheckpointSaved",
    "Evaluated",
    "Event",
    "Run",
    "RunEnded",
    "RunStarted",
    "StageClock",
    "StepDone",
    "fit",
    "train_step",
]
