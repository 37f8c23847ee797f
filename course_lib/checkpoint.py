"""Checkpoints: a run's whole state in one file that is never half written, and is safe to load.

What decides the rest of a run is small: the settings (batches, schedule and dropout are functions
of them and of the step), the step, the parameters, and the optimizer's state. A run that is resumed
is bit for bit the run that never stopped, on the same number of ranks with the same number of
threads (sums are taken in another order otherwise); both are recorded.

Only plain types are stored, so that `torch.load(weights_only=True)`, which runs no code from the
file, takes everything back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.errors import UserError

FORMAT = "course-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` steps.

    config: the run's settings, by name.
    step: steps done.
    model: the parameters and buffers, by name.
    optimizer: the optimizer's state_dict.
    ranks, threads_per_rank: what the bits of the rest of the run depend on.
    vocabulary: the characters that the model reads, in the order of their tokens.
    data_sha256: of the text that it is trained on, "" for generated data.
    """

    config: dict[str, Any]
    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    ranks: int
    threads_per_rank: int
    vocabulary: str
    data_sha256: str


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; at every moment a whole one lies at `path`, and the one before is kept.

    The new file is written beside the old one and put in its place in one move. The one before
    stays as `previous_path(path)`.

    Args:
        path: the file; its folder exists.
        checkpoint: plain types only.

    Raises:
        ValueError: if a value is not a plain type; the sentence names it.
        UserError: if the folder can't be written to.
    """
    content = {"format": FORMAT, **{k: getattr(checkpoint, k) for k in _field_names()}}
    _check_plain(content, "checkpoint")
    content["model"] = {name: _compact(value) for name, value in checkpoint.model.items()}
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            _keep_previous(path)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path} can't be written ({(error.strerror or 'error').lower()}): "
            "give a folder on a disk with room that you may write to."
        ) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint onto the CPU, running no code from the file.

    Raises:
        UserError: if there is no such file, or it is cut short, or it is none of ours; the sentence
            names the file, and the previous one where it is whole.
    """
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}: give the folder of a run that was saved.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another program's file; the sentence below is ours
            content = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] != FORMAT:
            raise KeyError(content["format"])
        return Checkpoint(**{name: content[name] for name in _field_names()})
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise UserError(
            f"{path} can't be read ({reason}): give a file that you may read."
        ) from None
    except Exception:  # whatever a damaged or foreign file makes the reader raise
        raise UserError(
            f"{path} is not a whole checkpoint of this course (cut short, or another program's): "
            + _way_out(path)
        ) from None


def restore_model(model: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Put a checkpoint's parameters into a model.

    Args:
        model: of the same shapes; changed in place.
        checkpoint: what was loaded.
        path: where from, for the error.

    Raises:
        UserError: if the checkpoint is another model's; the sentence names the first difference.
    """
    have, want = checkpoint.model, model.state_dict()
    for name in sorted({*have, *want}):
        shapes = [tuple(side[name].shape) if name in side else None for side in (have, want)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"{path} is another model's: {name} is {_shape_words(shapes[0])} there and "
                f"{_shape_words(shapes[1])} here; give the checkpoint of this model, or start "
                "in another folder."
            )
    model.load_state_dict(have)


def previous_path(path: Path) -> Path:
    """Return where the checkpoint before the last one is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def parameters_sha256(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters' bytes in the order of their names, as hex digits.

    Two models have the same one if every bit of every parameter is the same. Little endian, as
    every machine that torch runs on.
    """
    digest = hashlib.sha256()
    for _, param in sorted(model.named_parameters()):
        flat = param.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def plain_config(config: Any) -> dict[str, Any]:
    """Return a dataclass of settings as plain data (tuples become lists)."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(config).items()
    }


def _field_names() -> tuple[str, ...]:
    return tuple(Checkpoint.__dataclass_fields__)


def _compact(tensor: Tensor) -> Tensor:
    """Copy a tensor, so that a view is not saved with all that it is a view of."""
    return tensor.detach().clone()


def _keep_previous(path: Path) -> None:
    """Keep the file at `path` under its second name, without ever leaving `path` empty."""
    spare = previous_path(path).with_suffix(".partial")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except OSError:  # a file system without links
        shutil.copy2(path, spare)
    os.replace(spare, previous_path(path))


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in (str, int):
                raise ValueError(f"{where} has the key {key!r}: use a str or an int")
            _check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif type(value) not in (str, int, float, bool, type(None), Tensor):
        raise ValueError(
            f"{where} is a {type(value).__module__}.{type(value).__name__}, which the safe loader "
            "refuses: store a str, int, float, bool, None, Tensor, list or dict"
        )


def _way_out(path: Path) -> str:
    previous = previous_path(path)
    if path != previous and previous.is_file():
        with contextlib.suppress(UserError):
            step = load_checkpoint(previous).step
            return f"the one before it (step {step}) is whole; rename {previous.name} to go on."
    return "start again in another folder, or give another checkpoint."


def _shape_words(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "a single number"
