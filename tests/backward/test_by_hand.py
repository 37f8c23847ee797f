"""Training through the blocks' own backward passes is training through autograd."""

import copy

import pytest
import torch

from course_lib.backward.blocks import block_backward
from course_lib.backward.by_hand import use_backward_by_hand
from course_lib.backward.gradcheck import relative_errors
from course_lib.config import ADDITION
from course_lib.data.addition import Addition
from course_lib.forward.blocks import block
from course_lib.forward.model import Transformer
from course_lib.loss import cross_entropy
from course_lib.train.build import make_data, make_model
from tests.forward.reference import small_model

BATCH = Addition(3).batch(0, 16)


def gradients(model: Transformer) -> dict[str, torch.Tensor]:
    model.zero_grad()
    cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.mask).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("tied", [False, True])
def test_grad_holds_the_same_as_from_autograd(dtype: torch.dtype, tied: bool) -> None:
    model = small_model(dtype, tied=tied)
    by_hand = use_backward_by_hand(copy.deepcopy(model))
    assert by_hand.state_dict().keys() == model.state_dict().keys()
    assert by_hand(BATCH.inputs).equal(model(BATCH.inputs))
    errors = relative_errors(gradients(by_hand), gradients(model))
    assert max(errors.values()) < (1e-10 if dtype == torch.float64 else 1e-5)


def test_it_is_our_backward_pass_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args):
        calls.append(torch.is_grad_enabled())
        return block_backward(*args)

    monkeypatch.setattr("course_lib.backward.by_hand.block_backward", counted)
    gradients(use_backward_by_hand(small_model(layers=3)))
    assert calls == [False] * 3


def test_gradients_add_up_over_several_backward_passes() -> None:
    model = use_backward_by_hand(small_model())
    once = {name: value.clone() for name, value in gradients(model).items()}
    cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.mask).backward()
    twice = {name: p.grad for name, p in model.named_parameters()}
    assert max(relative_errors(twice, {n: 2 * g for n, g in once.items()}).values()) < 1e-12


def test_dropout_is_kept_for_the_backward_pass() -> None:
    model = small_model(dropout=0.3).train()
    by_hand = use_backward_by_hand(copy.deepcopy(model))
    torch.manual_seed(2)
    ours = gradients(by_hand)
    torch.manual_seed(2)
    assert max(relative_errors(ours, gradients(model)).values()) < 1e-10


def test_frozen_parameters_get_no_gradient() -> None:
    model = use_backward_by_hand(small_model())
    model.get_parameter("blocks.0.mlp.up.weight").requires_grad_(False)
    found = gradients(model)
    assert "blocks.0.mlp.up.weight" not in found
    assert "blocks.0.mlp.up.bias" in found


def test_hooks_fire_from_the_last_block_to_the_first() -> None:
    model = use_backward_by_hand(small_model())
    order: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    gradients(model)
    last = max(i for i, name in enumerate(order) if name.startswith("blocks.1."))
    first = min(i for i, name in enumerate(order) if name.startswith("blocks.0."))
    assert last < first


def test_a_second_walk_back_is_refused() -> None:
    model = use_backward_by_hand(small_model())
    loss = cross_entropy(model(BATCH.inputs), BATCH.targets, BATCH.mask)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="ran before"):
        loss.backward()


def test_fused_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="kernels is 'fused'"):
        use_backward_by_hand(small_model(kernels="fused"))


@pytest.mark.parametrize(
    ("changes", "by_hand"),
    [({}, True), ({"dtype": "bfloat16"}, False), ({"kernels": "fused"}, False)],
)
def test_a_readable_run_trains_by_hand(changes: dict[str, str], by_hand: bool) -> None:
    config = ADDITION.with_changes(**{"kernels": "readable", **changes})
    model = make_model(config, make_data(config), torch.device("cpu"))
    assert (model.run_block is not block) is by_hand
