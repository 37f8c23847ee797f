"""The measure of error refuses zeros, missing names and broadcast shapes; differences find
slopes."""

import pytest
import torch

from course_lib.backward.gradcheck import (
    directional_difference,
    numerical_gradient,
    relative_errors,
)


def test_the_slope_of_a_known_function() -> None:
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    before = x.clone()
    gradient = numerical_gradient(lambda: (x**3).sum(), x)
    assert torch.allclose(gradient, 3 * before**2, rtol=1e-8)
    assert x.equal(before)


def test_a_scalar_can_be_nudged() -> None:
    x = torch.tensor(2.0, dtype=torch.float64)
    assert numerical_gradient(lambda: x * x, x).item() == pytest.approx(4.0, rel=1e-8)


def test_a_slope_along_a_direction() -> None:
    tensors = {"a": torch.ones(2, dtype=torch.float64), "b": torch.ones(3, dtype=torch.float64)}
    direction = {"a": torch.tensor([1.0, 0.0]).double(), "b": torch.full((3,), 2.0).double()}
    slope = directional_difference(
        lambda: (tensors["a"] ** 2).sum() + tensors["b"].prod(), tensors, direction
    )
    assert slope == pytest.approx(2 * 1 + 3 * 2, rel=1e-8)
    assert all(tensor.equal(torch.ones_like(tensor)) for tensor in tensors.values())
    with pytest.raises(ValueError, match="names differ"):
        directional_difference(lambda: tensors["a"].sum(), tensors, {"a": direction["a"]})


def test_single_precision_is_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(ValueError, match="float64"):
        numerical_gradient(lambda: x.sum(), x)
    with pytest.raises(ValueError, match="float64"):
        directional_difference(lambda: x.sum(), {"x": x}, {"x": x.clone()})


def test_zeros_in_the_place_of_a_gradient_have_the_error_one() -> None:
    right = {"large": torch.full((3,), 1e3), "small": torch.full((3,), 1e-2)}
    zeros = {**right, "small": torch.zeros(3)}
    assert relative_errors(zeros, right) == {"large": 0.0, "small": 1.0}


def test_noise_in_the_place_of_a_true_zero_is_small() -> None:
    right = {"weight": torch.ones(100), "zero": torch.zeros(4)}
    noisy = {**right, "zero": torch.full((4,), 1e-12)}
    assert 0 < relative_errors(noisy, right)["zero"] < 1e-5
    assert relative_errors({**right, "zero": torch.full((4,), 1e-3)}, right)["zero"] > 1


def test_everything_zero() -> None:
    zeros = {"x": torch.zeros(2)}
    assert relative_errors(zeros, zeros) == {"x": 0.0}
    assert relative_errors({"x": torch.ones(2)}, zeros) == {"x": 1.0}


def test_missing_names_and_broadcast_shapes_are_refused() -> None:
    right = {"a": torch.ones(3), "b": torch.ones(3)}
    with pytest.raises(ValueError, match=r"names differ: \['b'\]"):
        relative_errors({"a": torch.ones(3)}, right)
    with pytest.raises(ValueError, match=r"a has the shape \(1,\), not \(3,\)"):
        relative_errors({**right, "a": torch.ones(1)}, right)
