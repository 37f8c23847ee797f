"""Exercises of chapter 01, the forward pass: layer norm here, attention, heads, FLOPs beside it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.teach.checking import Exercise, expect_close, expect_unchanged
from course_lib.teach.checking.forbidden import LAYER_NORM
from course_lib.teach.exercises.ch01_attention import CAUSAL, HEADS
from course_lib.teach.exercises.ch01_flops import FLOPS

__all__ = ["CAUSAL", "FLOPS", "HEADS", "LAYER"]

Norm = Callable[[Tensor, Tensor, Tensor, float], Tensor]
Mistakes = list[tuple[Any, str]]

LAYER = Exercise(
    "01.1",
    "Build layer norm",
    hints=(
        "Each token's vector has a mean and a variance of its own: take them over `dim=-1`.",
        "`keepdim=True` keeps [..., 1], which can be subtracted from x and divide it.",
        "The variance is the mean of the squared distances: (x - mean)**2, then .mean(...).",
        "Return (x - mean) / (variance + eps).sqrt() * weight + bias.",
    ),
    forbidden=(
        *LAYER_NORM,
        "torch.nn.LayerNorm",
        "torch.nn.functional.group_norm",
        "torch.nn.functional.instance_norm",
        "torch.nn.functional.batch_norm",
        "course_lib.forward.layers.layer_norm",
        "course_lib.forward.fused.layer_norm",
    ),
)


def _mistaken_norms(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Mistakes:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    width = x.shape[-1]
    sample = variance * width / max(width - 1, 1)
    std = variance.sqrt()
    whole = (x - x.mean()) / (x.var(correction=0) + eps).sqrt()
    return [
        (
            centred / (sample + eps).sqrt() * weight + bias,
            "You divided by D - 1, as `var` and `std` do unless told `correction=0`: divide by D.",
        ),
        (
            centred / (std + eps) * weight + bias,
            "eps belongs under the root: sqrt(variance + eps).",
        ),
        (
            centred / (variance + eps) * weight + bias,
            "You divided by the variance: take its square root first.",
        ),
        (centred * (variance + eps).sqrt() * weight + bias, "Divide by the root, don't multiply."),
        (centred * weight + bias, "The mean is gone, but the size is not: divide by the root."),
        (
            x / (variance + eps).sqrt() * weight + bias,
            "Subtract the mean from x, too, not only for the variance.",
        ),
        (centred / (variance + eps).sqrt(), "The weight and the bias are missing at the end."),
        (centred / (variance + eps).sqrt() * weight, "The bias is missing at the end."),
        (centred / (variance + eps).sqrt() + bias, "The weight is missing: multiply by it."),
        (
            centred / (variance + eps).sqrt() * (weight + bias),
            "Multiply by the weight first, then add the bias.",
        ),
        (
            whole * weight + bias,
            "One mean and variance for all tokens together: take them over `dim=-1` only.",
        ),
        (
            centred / variance.sqrt() * weight + bias,
            "eps is missing: add it to the variance, under the root.",
        ),
    ]


def _check_norm(answer: Norm, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> None:
    expected = functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    mistakes = _mistaken_norms(x, weight, bias, eps)
    got = answer(x.clone(), weight.clone(), bias.clone(), eps)
    expect_close(got, expected, mistakes=mistakes)


@LAYER.property("[1, 2, 3, 4] becomes [-1.3416, -0.4472, 0.4472, 1.3416]")
def _four_numbers(answer: Norm) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    _check_norm(answer, x, torch.ones(4).double(), torch.zeros(4).double(), 1e-5)


@LAYER.property(
    "it equals PyTorch's for any leading dimensions, a small width, weight and bias",
    cases={"shape (5,)": (5,), "shape (3, 4)": (3, 4), "shape (2, 5, 3)": (2, 5, 3)},
    likely="Mean and variance are each token's own: over `dim=-1`, with `keepdim=True`.",
)
def _any_shape(answer: Norm, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x = 3 * torch.randn(shape, dtype=torch.float64) + 2
    weight, bias = torch.randn(2, shape[-1], dtype=torch.float64)
    _check_norm(answer, x, weight, bias, 1e-5)


@LAYER.property(
    "eps is the one that is given, under the root",
    likely="Use the argument `eps`, and add it to the variance before the root.",
)
def _eps(answer: Norm) -> None:
    torch.manual_seed(2)
    x = torch.randn(3, 4, dtype=torch.float64)
    _check_norm(answer, x, torch.randn(4).double(), torch.randn(4).double(), 0.5)


@LAYER.property(
    "a vector of equal numbers gives the bias, not nan",
    likely="Its variance is 0: without eps that is 0 ÷ 0.",
)
def _constant(answer: Norm) -> None:
    _check_norm(answer, torch.full((2, 3), 7.0), torch.ones(3), torch.tensor([1.0, 2, 3]), 1e-5)


@LAYER.property("`x` stays as it is, and the dtype too")
def _norm_inputs_stay(answer: Norm) -> None:
    x = torch.tensor([[1.0, 3.0, 8.0]])
    before = x.clone()
    weight, bias = torch.full((3,), 2.0), torch.ones(3)
    expect_close(answer(x, weight, bias, 1e-5), functional.layer_norm(before, (3,), weight, bias))
    expect_unchanged(x, before, "x")
