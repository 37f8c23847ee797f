"""Settings: the defaults are valid, and each wrong value is named with its mend."""

import dataclasses
import subprocess
import sys

import pytest

from course_lib.config import ADDITION, ModelConfig, TrainConfig, preset
from course_lib.errors import UserError


def test_hidden_width_is_four_times_the_width_unless_given() -> None:
    assert ModelConfig(vocab_size=13, context=11, width=32).hidden == 128
    assert ModelConfig(vocab_size=13, context=11, width=32, hidden=96).hidden == 96
    assert ModelConfig(vocab_size=13, context=11, width=32, heads=8).head_width == 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"heads": 5}, "heads is 5, which does not divide the width 64: use one of 1, 2, 4, 8"),
        ({"layers": 0}, "layers is 0: use a whole number of at least 1."),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"width": 2.5}, "width is 2.5: use a whole number"),
        ({"dropout": 1.0}, "dropout is 1.0: use a number from 0 to below 1."),
        ({"kernels": "fast"}, "kernels is 'fast': use one of readable, fused."),
    ],
)
def test_a_wrong_size_is_named(changes: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        ModelConfig(**{"vocab_size": 13, "context": 11, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"task": "multiplication"}, "task is 'multiplication': use one of addition, text."),
        ({"task": "text"}, "needs a file"),
        ({"digits": 0}, "digits is 0: use a whole number from 1 to 6."),
        ({"digits": 7}, "digits is 7"),
        ({"digits": True}, "digits is True"),
        ({"steps": 0}, "steps is 0"),
        ({"batch_size": -4}, "batch_size is -4"),
        ({"seed": -1}, "seed is -1"),
        ({"dtype": "float8"}, "dtype is 'float8': use one of float32, float64, bfloat16."),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"schedule": "step"}, "schedule is 'step'"),
        ({"peak_lr": -1e-3}, "peak_lr is -0.001: use a number from 0 up."),
        ({"peak_lr": float("nan")}, "peak_lr is nan"),
        ({"peak_lr": "3e-3"}, "peak_lr is 3e-3: use a number"),
        ({"betas": (0.9, 1.0)}, "betas is 1.0"),
        ({"betas": (0.9,)}, "give two numbers"),
        ({"heads": 3}, "heads is 3, which does not divide the width"),
    ],
)
def test_a_wrong_setting_of_a_run_is_named(changes: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        ADDITION.with_changes(**changes)


def test_presets_are_the_sizes_the_course_speaks_of() -> None:
    addition = preset("addition", digits=4)
    assert (addition.layers, addition.width, addition.heads, addition.digits) == (2, 64, 4, 4)
    text = preset("text", text="book.txt")
    assert (text.layers, text.width, text.heads, text.context) == (4, 128, 4, 64)
    with pytest.raises(UserError, match="needs a file"):
        preset("text")
    with pytest.raises(UserError, match="task is 'chess'"):
        preset("chess")


def test_settings_survive_a_round_through_plain_values() -> None:
    config = preset("text", text="book.txt", betas=[0.8, 0.9])
    assert TrainConfig(**dataclasses.asdict(config)) == config
    assert config.betas == (0.8, 0.9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.steps = 3  # type: ignore[misc]


def test_settings_are_checked_without_importing_torch() -> None:
    code = "import sys, course_lib.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
