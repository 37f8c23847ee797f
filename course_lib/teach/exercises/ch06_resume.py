"""Exercise 06.2: a resume that continues the same run."""

import copy
import io
from collections.abc import Callable
from typing import Any

import torch

from course_lib.teach.checking import Exercise, expect, expect_equal, fail
from course_lib.teach.exercises.ch06_tools import (
    SpyModel,
    SpyOptimizer,
    random_batch,
    token_losses,
)

Run = Callable[..., dict[str, Any]]

RESUME = Exercise(
    "06.2",
    "A resume that continues the same run",
    hints=(
        "What decides the rest of the run? Weights, the optimizer's memory, the step, the "
        "generator of random numbers.",
        "torch.get_rng_state() gives the generator's state, torch.set_rng_state(...) puts it back.",
        "state_dict() hands out the tensors themselves: copy.deepcopy the whole dict at the end.",
    ),
    forbidden=("course_lib.train.fit.fit", "course_lib.checkpoint.restore_model"),
)


class _Steps:
    """The `take_step` of the exercise; notes what it finds at each call."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.found: list[tuple[Any, Any, Any]] = []

    def __call__(self, model: SpyModel, optimizer: SpyOptimizer, step: int) -> None:
        self.numbers.append(step)
        weights = [p.detach().clone() for p in model.parameters()]
        self.found.append((weights, [b.clone() for b in optimizer.buffers], torch.get_rng_state()))
        optimizer.zero_grad()
        batch = random_batch((3, 2, 1), seed=step)
        token_losses(model, batch)[batch.mask].mean().backward()
        optimizer.step()


def _begin(answer: Run, until: int, seed: int, saved: Any = None) -> tuple[_Steps, SpyModel, Any]:
    """Run the answer on fresh objects; those of a resumed run start from other numbers."""
    steps, model = _Steps(), SpyModel(dropout=0.5, seed=seed)
    optimizer = SpyOptimizer(model, momentum=0.9)
    torch.manual_seed(100 + seed)
    state = answer(model, optimizer, steps, until, saved)
    expect(
        isinstance(state, dict),
        expected="a dict with all that a later call needs",
        came=type(state).__name__ if state is not None else "nothing",
        likely="End with `return {...}`.",
    )
    return steps, model, state


@RESUME.property("from the start it takes the steps 0, 1, 2, … once each, up to `until`")
def _from_the_start(answer: Run) -> None:
    steps, _, _ = _begin(answer, 5, seed=0)
    expect_equal(steps.numbers, [0, 1, 2, 3, 4], what="the steps taken")


@RESUME.property("what it returns can be written to a file and read by the safe loader")
def _plain(answer: Run) -> None:
    _, _, state = _begin(answer, 2, seed=0)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except Exception:
        fail(
            "numbers, strings, tensors, lists and dicts",
            "something that the safe loader refuses",
            "Store state_dict()s, not the model or the optimizer themselves.",
        )


@RESUME.property(
    "a resumed run goes on at the saved step, and finds what the whole run found there",
    cases={"2 + 4 steps": 2, "5 + 1 steps": 5},
)
def _goes_on(answer: Run, k: int) -> None:
    whole, model, _ = _begin(answer, 6, seed=0)
    _, _, state = _begin(answer, k, seed=0)
    rest, resumed, _ = _begin(answer, 6, seed=7, saved=copy.deepcopy(state))
    after = list(range(k, 6))
    expect_equal(
        rest.numbers,
        after,
        what="the steps after the resume",
        mistakes=[
            (list(range(6)), "The resumed run began at step 0: begin at the saved step."),
            (list(range(k, 6 + k)), "`until` counts all steps, the saved ones too."),
            (list(range(k + 1, 6)), "A step was left out: save how many steps are done."),
            (list(range(k - 1, 6)), "A step was taken twice: save how many steps are done."),
            (list(range(6 - k)), "The resumed run began at step 0: begin at the saved step."),
        ],
    )
    _expect_same_state(whole.found[k], rest.found[0])
    same = all(map(torch.equal, model.parameters(), resumed.parameters()))
    expect(same, expected="the whole run's weights, to the bit", came="other weights")


def _expect_same_state(wanted: tuple[Any, Any, Any], got: tuple[Any, Any, Any]) -> None:
    names = ("weights", "the optimizer's memory", "the random numbers to come")
    mends = (
        "Put the model's state back: model.load_state_dict.",
        "Put the optimizer's state back, or its momentum starts from zero.",
        "Put the generator back (torch.set_rng_state), or dropout draws other masks.",
    )
    for name, mend, right, came in zip(names, mends, wanted, got, strict=True):
        right, came = ([x] if isinstance(x, torch.Tensor) else x for x in (right, came))
        expect(
            all(map(torch.equal, right, came)),
            expected=f"{name} as the whole run had them at this step",
            came="others",
            likely=mend,
        )


@RESUME.property("what was saved stays as it was, while training goes on")
def _snapshot(answer: Run) -> None:
    steps, model = _Steps(), SpyModel(dropout=0.5)
    optimizer = SpyOptimizer(model, momentum=0.9)
    state = answer(model, optimizer, steps, 2, None)
    before = copy.deepcopy(state)
    for step in (2, 3):
        steps(model, optimizer, step)
    expect(
        _same(state, before),
        expected="the state of step 2, still",
        came="a state that changed with the model",
        likely="state_dict() hands out the tensors themselves: return copy.deepcopy(...).",
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


@RESUME.property("a run that is complete takes no step more")
def _complete(answer: Run) -> None:
    _, model, state = _begin(answer, 3, seed=0)
    steps, resumed, _ = _begin(answer, 3, seed=7, saved=state)
    expect_equal(steps.numbers, [], what="the steps after the resume")
    same = all(map(torch.equal, model.parameters(), resumed.parameters()))
    expect(same, expected="the saved weights", came="others", likely="Load the state first.")
