"""A run's folder: settings and state in `checkpoint.pt`, the log in `metrics.jsonl`.

Rank 0 writes; the others keep away. Nothing of an earlier run is overwritten unless it is resumed.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from course_lib.checkpoint import Checkpoint, load_checkpoint
from course_lib.config import TrainConfig
from course_lib.errors import UserError
from course_lib.train.events import Event

CHECKPOINT, METRICS, CURVE = "checkpoint.pt", "metrics.jsonl", "loss_curve.png"


def prepare_folder(folder: Path, resume: bool) -> None:
    """Make a run's folder, or see that it can be used.

    Raises:
        UserError: if it can't be made or written to, holds a run though none is to be resumed, or
            holds none though one is.
    """
    holds_run = [name for name in (CHECKPOINT, METRICS) if (folder / name).exists()]
    if resume and not (folder / CHECKPOINT).is_file():
        raise UserError(
            f"there is no {CHECKPOINT} in {folder}: give the folder of a run that was saved, "
            "or start one without --resume."
        )
    if holds_run and not resume:
        raise UserError(
            f"{folder} already holds a run ({holds_run[0]}): go on with it by --resume, "
            "or give another folder by --out."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"{folder} can't be written to ({(error.strerror or 'error').lower()}): "
            "give a folder that you may write to by --out."
        ) from None


def new_folder(parent: Path, task: str) -> Path:
    """Make and return the first free one of `parent`/task-001, task-002, ...

    Raises:
        UserError: if it can't be made.
    """
    number = 1
    while True:
        folder = parent / f"{task}-{number:03d}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UserError(
                f"{folder} can't be made ({(error.strerror or 'error').lower()}): "
                "give a folder that you may write to by --out."
            ) from None


def saved_run(folder: Path) -> tuple[Checkpoint, TrainConfig]:
    """Read the checkpoint of a run's folder, and its settings.

    Raises:
        UserError: if it is missing, cut short or damaged, or has settings that this version of the
            course doesn't know.
    """
    path = folder / CHECKPOINT
    checkpoint = load_checkpoint(path)
    known = {field.name for field in fields(TrainConfig)}
    strange = sorted(set(checkpoint.config) - known)
    if strange:
        raise UserError(
            f"{path} has the setting {strange[0]}, which this version of the course doesn't know: "
            "resume it with the version that wrote it."
        )
    return checkpoint, TrainConfig(**checkpoint.config)


def check_same_run(folder: Path, saved: TrainConfig, changes: dict[str, Any]) -> None:
    """See that the settings given for a resumed run are those it was started with.

    Args:
        folder: for the error.
        saved: what the checkpoint holds.
        changes: the settings that the user gave, by name.

    Raises:
        UserError: the first setting that differs, with both values.
    """
    for name, value in changes.items():
        before = getattr(saved, name)
        if before != value:
            raise UserError(
                f"the run in {folder} has {name} {before}, and {value} was given: leave the "
                "setting out to go on with that run, or start another by --out."
            )


class MetricsFile:
    """Appends events to `metrics.jsonl`, one JSON object a line.

    Args:
        path: the file.
        step: steps done before; what an interrupted run wrote after its last checkpoint is
            dropped, so that every step stands there once.
    """

    def __init__(self, path: Path, step: int = 0) -> None:
        kept = [line for line in read_metrics(path) if line.get("step", 0) <= step]
        kept = [line for line in kept if line["event"] != "end"] if step else []
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        os.replace(partial, path)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, event: Event) -> None:
        """Append one event."""
        self._file.write(json.dumps(event.as_dict()) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return a metrics file's lines as plain data, without a last one that is cut short."""
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines
