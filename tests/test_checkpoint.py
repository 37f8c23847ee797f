"""Checkpoints: whole or not at all, safe to load, and a sentence for each way to be wrong."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from course_lib import checkpoint as checkpoint_module
from course_lib.checkpoint import (
    Checkpoint,
    load_checkpoint,
    parameters_sha256,
    previous_path,
    restore_model,
    save_checkpoint,
)
from course_lib.errors import UserError


def make_checkpoint(step: int = 3, **changes) -> Checkpoint:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    content = {
        "config": {"task": "addition", "betas": [0.9, 0.99], "text": None},
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "ranks": 2,
        "threads_per_rank": 1,
        "vocabulary": "0123",
        "data_sha256": "",
    }
    return Checkpoint(**{**content, **changes})


def test_comes_back_as_it_was(tmp_path):
    saved = make_checkpoint()
    save_checkpoint(tmp_path / "c.pt", saved)
    loaded = load_checkpoint(tmp_path / "c.pt")
    assert loaded.config == saved.config
    assert (loaded.step, loaded.ranks, loaded.vocabulary) == (3, 2, "0123")
    for name, value in saved.model.items():
        assert torch.equal(loaded.model[name], value)
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


def test_the_one_before_is_kept(tmp_path):
    path = tmp_path / "c.pt"
    for step in (1, 2, 3):
        save_checkpoint(path, make_checkpoint(step))
    assert load_checkpoint(path).step == 3
    assert load_checkpoint(previous_path(path)).step == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.previous.pt", "c.pt"]


@pytest.mark.parametrize("place", ["save", "fsync", "replace"])
def test_a_write_that_breaks_off_leaves_the_old_one(tmp_path, monkeypatch, place):
    """Whatever breaks and wherever: at `path` lies a whole checkpoint, and no litter beside it."""
    path = tmp_path / "c.pt"
    save_checkpoint(path, make_checkpoint(1))

    def breaks(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch if place == "save" else os, place, breaks)
    with pytest.raises(UserError, match=r"c\.pt can't be written \(no space left on device\)"):
        save_checkpoint(path, make_checkpoint(2))
    monkeypatch.undo()
    assert load_checkpoint(path).step == 1
    assert not list(tmp_path.glob("*c.pt*partial"))


def test_file_systems_without_links(tmp_path, monkeypatch):
    def refuses(*args):
        raise OSError("no links here")

    monkeypatch.setattr(checkpoint_module.os, "link", refuses)
    for step in (1, 2):
        save_checkpoint(tmp_path / "c.pt", make_checkpoint(step))
    assert load_checkpoint(previous_path(tmp_path / "c.pt")).step == 1


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.float64(0.5), "numpy.float64"),
        (np.int64(3), "numpy.int64"),
        (Path("x"), "Path"),
        ({1, 2}, "builtins.set"),
        (nn.Parameter(torch.zeros(1)), "Parameter"),
    ],
)
def test_only_plain_types_are_taken(tmp_path, value, named):
    with pytest.raises(ValueError, match=named) as caught:
        save_checkpoint(tmp_path / "c.pt", make_checkpoint(config={"deep": [1, value]}))
    assert "checkpoint['config']['deep'][1]" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_is_cut_short(tmp_path, share):
    path = tmp_path / "c.pt"
    save_checkpoint(path, make_checkpoint(1))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        load_checkpoint(path)
    assert "not a whole checkpoint" in str(caught.value)


def test_a_file_that_is_cut_short_names_the_whole_one_before(tmp_path):
    path = tmp_path / "c.pt"
    for step in (1, 2):
        save_checkpoint(path, make_checkpoint(step))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match=r"the one before it \(step 1\).*c\.previous\.pt"):
        load_checkpoint(path)


class _Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("way", ["pickle", "torch"])
def test_a_file_with_code_in_it_runs_nothing(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    if way == "pickle":
        (tmp_path / "c.pt").write_bytes(pickle.dumps(_Bomb()))
    else:
        torch.save({"format": checkpoint_module.FORMAT, "x": _Bomb()}, tmp_path / "c.pt")
    with pytest.raises(UserError, match="not a whole checkpoint"):
        load_checkpoint(tmp_path / "c.pt")
    assert not (tmp_path / "exploded").exists()


def test_other_files(tmp_path):
    with pytest.raises(UserError, match="no checkpoint"):
        load_checkpoint(tmp_path / "missing.pt")
    torch.save({"format": "another program's"}, tmp_path / "c.pt")
    with pytest.raises(UserError, match="not a whole checkpoint"):
        load_checkpoint(tmp_path / "c.pt")


def test_another_models_checkpoint_is_refused_and_changes_nothing(tmp_path):
    saved = make_checkpoint()
    other = nn.Linear(5, 2)
    before = other.weight.clone()
    with pytest.raises(UserError, match="weight is 2x4 there and 2x5 here"):
        restore_model(other, saved, tmp_path / "c.pt")
    with pytest.raises(UserError, match="bias is 2 there and missing here"):
        restore_model(nn.Linear(4, 2, bias=False), saved, tmp_path / "c.pt")
    assert torch.equal(other.weight, before)


def test_sha256_is_of_the_bytes_in_name_order():
    import hashlib

    class Model(nn.Module):
        def __init__(self, order: str) -> None:
            super().__init__()
            for name in order:
                self.register_parameter(name, nn.Parameter(torch.full((2,), float(ord(name)))))

    expected = hashlib.sha256(np.array([97, 97, 98, 98], dtype="<f4").tobytes()).hexdigest()
    assert parameters_sha256(Model("ab")) == parameters_sha256(Model("ba")) == expected
    changed = Model("ab")
    with torch.no_grad():
        changed.a[0] = torch.nextafter(changed.a[0], torch.tensor(1e9))
    assert parameters_sha256(changed) != expected
