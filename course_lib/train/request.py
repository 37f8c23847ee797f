"""What a user asks for, checked from end to end before anything is started or written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.config import TrainConfig, preset
from course_lib.data.sharding import rows_per_rank
from course_lib.errors import UserError
from course_lib.ranks.placement import MAX_WORLD_SIZE
from course_lib.train.build import check_device, make_data
from course_lib.train.folder import check_same_run, prepare_folder, saved_run


@dataclass(frozen=True)
class Request:
    """A run that can start. out: None if a new folder is to be made for it."""

    config: TrainConfig
    ranks: int
    out: Path | None
    resume: bool
    stop_after: int | None


def make_request(
    settings: dict[str, Any],
    *,
    ranks: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    stop_after: int | None = None,
) -> Request:
    """Turn options into a run, or say in one sentence what is wrong with them.

    Args:
        settings: fields of TrainConfig that were given; None stands for "not given". Kernels are
            fused unless asked for otherwise, and the task is text where a text is given.
        ranks: 1 if not given, or those of the run that is resumed.
        out: the run's folder; made if it isn't there.
        resume: go on with the run in `out`; settings that are given must be that run's.
        stop_after: as in `fit`.

    Raises:
        UserError: whatever is wrong.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if given.get("text"):
        given["text"] = str(Path(given["text"]).absolute())
    if ranks is not None and not 1 <= ranks <= MAX_WORLD_SIZE:
        raise UserError(f"ranks is {ranks}: use a whole number from 1 to {MAX_WORLD_SIZE}.")
    if stop_after is not None and stop_after < 1:
        raise UserError(f"stop-after is {stop_after}: use a whole number of at least 1.")
    if resume:
        config, saved_ranks = _resumed(out, given)
    else:
        config, saved_ranks = _fresh(given), 1
    ranks = ranks or saved_ranks
    rows_per_rank(config.batch_size, ranks)
    check_device(config.device, ranks)
    make_data(config)
    if out is not None:
        prepare_folder(out, resume)
    return Request(config, ranks, out, resume, stop_after)


def _fresh(given: dict[str, Any]) -> TrainConfig:
    changes = {"kernels": "fused", **given}
    task = changes.pop("task", "text" if "text" in changes else "addition")
    wrong = {"addition": ("text", "context"), "text": ("digits",)}.get(task, ())
    for name in wrong:
        if name in given:
            other = "text" if task == "addition" else "addition"
            raise UserError(
                f"--{name} {given[name]} belongs to the task {other}, and the task is {task}: "
                f"leave it out, or give --task {other}."
            )
    return preset(task, **changes)


def _resumed(out: Path | None, given: dict[str, Any]) -> tuple[TrainConfig, int]:
    if out is None:
        raise UserError("--resume goes on with the run in a folder: name the folder by --out DIR.")
    checkpoint, saved = saved_run(out)
    moved = given.pop("text", None)
    check_same_run(out, saved, given)
    return (saved.with_changes(text=moved) if moved else saved), checkpoint.ranks
