"""What a property says when an answer is wrong: expected, came, and the likely mistake.

Texts are the same on every run: values with few digits, no addresses, no object reprs.
"""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

# Room for a different order of sums, and far below any mistake that a check must see.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
SHOWN_ELEMENTS = 8

Mistake = tuple[Any, str]


class Wrong(Exception):
    """A property doesn't hold.

    Args:
        expected: what a right answer gives, in a few words.
        came: what this answer gave.
        likely: the likely mistake and the way on; empty where none is known.
    """

    def __init__(self, expected: str, came: str, likely: str = "") -> None:
        super().__init__(expected, came, likely)
        self.expected, self.came, self.likely = expected, came, likely


def describe(value: Any) -> str:
    """Return a short text for any value, the same on every run.

    Args:
        value: anything; only plain values and tensors are shown, of others the type's name.
    """
    if isinstance(value, Tensor):
        return _describe_tensor(value)
    if isinstance(value, bool | int | str | None):
        return _cut(repr(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        inner = ", ".join(describe(item) for item in value[:SHOWN_ELEMENTS])
        inner += ", ..." if len(value) > SHOWN_ELEMENTS else ""
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        inner = ", ".join(f"{describe(key)}: {describe(item)}" for key, item in value.items())
        return _cut(f"{{{inner}}}")
    if value is Ellipsis:
        return "..."
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def expect(holds: bool, *, expected: str, came: str, likely: str = "") -> None:
    """Raise `Wrong` unless `holds`.

    Args:
        holds: whether the property is true.
        expected: what a right answer gives.
        came: what this answer gave.
        likely: the likely mistake.

    Raises:
        Wrong: when `holds` is false.
    """
    if not holds:
        raise Wrong(expected, came, likely)


def expect_equal(
    got: Any, expected: Any, *, what: str = "", mistakes: Iterable[Mistake] = ()
) -> None:
    """Compare plain values (numbers, strings, lists) exactly.

    Args:
        got: what the answer gave.
        expected: the right value.
        what: what it is, put before the values ("the order").
        mistakes: (wrong value, likely mistake) pairs; the first that equals `got` is named.

    Raises:
        Wrong: when type or value differ (a bool is no number).
    """
    if type(got) is type(expected) and got == expected:
        return
    likely = next(
        (text for value, text in mistakes if type(value) is type(got) and value == got), ""
    )
    raise Wrong(_with(what, describe(expected)), describe(got), likely)


def expect_close(
    got: Any,
    expected: Tensor | float,
    *,
    what: str = "",
    tolerance: float | None = None,
    mistakes: Iterable[Mistake] = (),
) -> None:
    """Compare tensors or numbers: kind, shape, dtype, then values within a tolerance.

    Args:
        got: what the answer gave; a number may stand for a tensor of no dimensions.
        expected: the right tensor, any shape and dtype, or a number.
        what: what it is, put before the values ("the gradient of weight").
        tolerance: relative to the largest expected value; by dtype where None.
        mistakes: (wrong tensor or number, likely mistake) pairs; the first near `got` is named.

    Raises:
        Wrong: with expected and got; where they are tensors, the first element that differs.
    """
    if not isinstance(expected, Tensor):
        _expect_number(got, float(expected), what, tolerance, mistakes)
        return
    if isinstance(got, int | float) and not isinstance(got, bool) and expected.dim() == 0:
        got = torch.tensor(got, dtype=expected.dtype)
    _expect_like(got, expected, what, mistakes)
    if is_close(got, expected, tolerance):
        return
    wanted, came = _first_difference(got, expected, what, tolerance)
    if not torch.isfinite(got).all() and torch.isfinite(expected).all():
        came += "; nan or inf comes from a division by 0, an overflow or a logarithm of 0"
    raise Wrong(wanted, came, _matching(got, mistakes, tolerance))


def expect_unchanged(now: Tensor, before: Tensor, name: str) -> None:
    """Compare a tensor that the answer was given with a copy from before the call, bit for bit.

    Args:
        now: the tensor the answer was given.
        before: its clone from before the call.
        name: its name in the exercise's text.

    Raises:
        Wrong: when they differ.
    """
    if now.shape == before.shape and torch.equal(now, before):
        return
    raise Wrong(
        f"`{name}` stays as it was: {describe(before)}",
        describe(now),
        f"You changed the caller's tensor `{name}` in place (`-=`, `+=`, `mul_` and the like do): "
        "make a new one.",
    )


def is_close(got: Tensor, expected: Tensor, tolerance: float | None = None) -> bool:
    """Return whether max |got - expected| <= tolerance x max(|expected|), shapes alike.

    Args:
        got: any tensor.
        expected: any tensor; nan and infinity must stand at the same places.
        tolerance: relative; by dtype where None, 0 for integers.
    """
    if got.shape != expected.shape:
        return False
    if not expected.is_floating_point() and not got.is_floating_point():
        return torch.equal(got, expected)
    return not bool(_far(got, expected, tolerance).any())


def _far(got: Tensor, expected: Tensor, tolerance: float | None) -> Tensor:
    """Return the mask of elements that differ by more than tolerance x max |expected|."""
    if tolerance is None:
        tolerance = max(TOLERANCES.get(t.dtype, 1e-6) for t in (got, expected))
    got, expected = got.detach().double(), expected.detach().double()
    finite = expected[torch.isfinite(expected)]
    scale = finite.abs().max().item() if finite.numel() else 0.0
    room = tolerance * max(scale, 1e-12)
    return ~torch.isclose(got, expected, rtol=0.0, atol=room, equal_nan=True)


def _expect_number(
    got: Any, expected: float, what: str, tolerance: float | None, mistakes: Iterable[Mistake]
) -> None:
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, int | float):
        raise Wrong(_with(what, f"a number, {describe(expected)}"), describe(got), _nothing(got))
    room = (1e-6 if tolerance is None else tolerance) * max(abs(expected), 1e-12)
    if abs(got - expected) <= room:
        return
    near = [text for value, text in mistakes if abs(got - value) <= 1e-6 * max(abs(value), 1e-12)]
    raise Wrong(_with(what, describe(expected)), describe(float(got)), near[0] if near else "")


def _expect_like(got: Any, expected: Tensor, what: str, mistakes: Iterable[Mistake]) -> None:
    if not isinstance(got, Tensor):
        wanted = f"a tensor of shape {tuple(expected.shape)}"
        raise Wrong(_with(what, wanted), describe(got), _nothing(got))
    if got.shape != expected.shape:
        likely = _matching(got, mistakes, None)
        shapes = f"shape {tuple(expected.shape)}", f"shape {tuple(got.shape)}"
        raise Wrong(_with(what, shapes[0]), shapes[1], likely)
    if got.dtype != expected.dtype:
        names = [str(t.dtype).removeprefix("torch.") for t in (expected, got)]
        raise Wrong(_with(what, f"dtype {names[0]}"), f"dtype {names[1]}")


def _nothing(got: Any) -> str:
    return "Nothing came back: end the function with `return ...`." if got is None else ""


def _matching(got: Tensor, mistakes: Iterable[Mistake], tolerance: float | None) -> str:
    for value, text in mistakes:
        wrong = value if isinstance(value, Tensor) else torch.tensor(value, dtype=got.dtype)
        if is_close(got, wrong.expand_as(got) if wrong.dim() == 0 else wrong, tolerance):
            return text
    return ""


def _first_difference(
    got: Tensor, expected: Tensor, what: str, tolerance: float | None
) -> tuple[str, str]:
    if expected.numel() <= SHOWN_ELEMENTS:
        return _with(what, describe(expected)), describe(got)
    differs = _far(got, expected, tolerance).flatten().nonzero().flatten().tolist()
    index = differs[0]
    # Not torch's unravel_index: its first call imports sympy, which takes seconds.
    place = [int(i) for i in np.unravel_index(index, tuple(expected.shape))]
    at = f"at {place} {expected.flatten()[index].item():.6g}"
    share = f"{got.flatten()[index].item():.6g} ({len(differs)} of {got.numel()} elements differ)"
    return _with(what, at), share


def _describe_tensor(value: Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    if value.numel() > SHOWN_ELEMENTS:
        return f"a tensor of shape {tuple(value.shape)}"
    shown = _numbers(value.detach().tolist())
    return f"tensor({shown})" if dtype in ("float32", "float64") else f"tensor({shown}, {dtype})"


def _numbers(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(_numbers(value) for value in values)}]"
    return f"{values:.6g}" if isinstance(values, float) else repr(values)


def _with(what: str, value: str) -> str:
    return f"{what}: {value}" if what else value


def _cut(text: str, length: int = 120) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def fail(expected: str, came: str, likely: str = "") -> NoReturn:
    """Raise `Wrong`, where a property has found the mistake itself."""
    raise Wrong(expected, came, likely)
