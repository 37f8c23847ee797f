"""The formulas against torch's own counter, against parameters, and against operations seen."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.config import ModelConfig
from course_lib.cost.formulas import (
    GELU_FLOPS,
    NORM_FLOPS,
    SOFTMAX_FLOPS,
    Cost,
    attention_core_costs,
    block_costs,
    layer_norm_cost,
    linear_cost,
    matmul_flops,
    model_costs,
    residual_cost,
    total,
)
from course_lib.forward.blocks import block
from course_lib.forward.model import Transformer
from course_lib.forward.weights import named

SIZES = [
    {"batch": 2, "tokens": 5, "width": 8, "heads": 2, "hidden": 24},
    {"batch": 3, "tokens": 7, "width": 12, "heads": 3, "hidden": 20},
    {"batch": 1, "tokens": 1, "width": 6, "heads": 1, "hidden": 5},
]


def counted(function, *args) -> int:
    """The FLOPs in matrix products that torch's counter sees."""
    with FlopCounterMode(display=False) as counter:
        function(*args)
    return counter.get_total_flops()


def model_of(sizes, **changes) -> Transformer:
    config = ModelConfig(
        vocab_size=13, context=11, width=sizes["width"], heads=sizes["heads"],
        hidden=sizes["hidden"], **changes,
    )  # fmt: skip
    return Transformer(config)


def test_a_matrix_product():
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert matmul_flops(3, 5, 7) == counted(torch.matmul, a, b) == 210


@pytest.mark.parametrize("sizes", SIZES)
def test_a_block_equals_torchs_counter_and_its_parameters(sizes):
    weights = model_of(sizes).weights().blocks[0]
    x = torch.randn(sizes["batch"], sizes["tokens"], sizes["width"])
    cost = total(block_costs(**sizes).values())
    assert cost.matmul_flops == counted(lambda: block(x, weights, sizes["heads"]))
    assert cost.parameters == sum(tensor.numel() for _, tensor in named(weights))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_equals_torchs_counter_and_its_parameters(sizes, tied):
    model = model_of(sizes, layers=3, tied=tied)
    tokens = torch.randint(0, 13, (sizes["batch"], sizes["tokens"]))
    cost = total(model_costs(model.config, *tokens.shape).values())
    assert cost.matmul_flops == counted(model, tokens)
    assert cost.parameters == model.parameter_count()


class Operations(TorchDispatchMode):
    """Counts operations element by element: of a reduction its inputs, else its outputs."""

    REDUCTIONS = ("mean", "sum", "amax")

    def __init__(self):
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        # A mean's division by n is one operation a row; the formulas leave such terms out.
        self.flops += (args[0] if name in self.REDUCTIONS else result).numel()
        return result


def seen(function) -> int:
    with Operations() as operations:
        function()
    return operations.flops


def test_norm_gelu_and_softmax_cost_what_their_operations_add_up_to():
    x, w, b = torch.randn(6, 1000), torch.randn(1000), torch.randn(1000)

    def norm():
        centred = x - x.mean(-1, keepdim=True)
        factor = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return centred * factor * w + b

    def softmax():
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    assert seen(norm) == NORM_FLOPS * x.numel() + 2 * 6  # eps and the root: once a row
    assert layer_norm_cost(6, 1000).other_flops == NORM_FLOPS * x.numel()
    assert seen(softmax) == SOFTMAX_FLOPS * x.numel()
    assert seen(lambda: x * (((x * math.sqrt(0.5)).erf() + 1) * 0.5)) == GELU_FLOPS * x.numel()


def test_bytes_are_those_of_the_tensors_that_go_in_and_out():
    x, weight, bias = torch.randn(10, 6), torch.randn(4, 6), torch.randn(4)
    tensors = (x, weight, bias, x @ weight.T + bias)
    assert linear_cost(10, 6, 4).bytes_moved == sum(t.nbytes for t in tensors)
    assert residual_cost(x.numel()).bytes_moved == 3 * x.nbytes
    assert layer_norm_cost(10, 6).bytes_moved == 2 * x.nbytes + 2 * 6 * 4
    q = torch.randn(2, 3, 5, 4)  # B H T K
    scores = q @ q.transpose(-2, -1)
    core = attention_core_costs(2, 5, 3, 4)
    assert core["scores"].bytes_moved == 2 * q.nbytes + scores.nbytes
    assert core["weighted sum"].bytes_moved == 2 * q.nbytes + scores.nbytes
    assert core["softmax"].bytes_moved == 2 * scores.nbytes


def test_costs_add_up_and_say_what_memory_has_to_do():
    a, b = Cost(1, 2, 3, 4), Cost(10, 20, 30, 40)
    assert a + b == Cost(11, 22, 33, 44)
    assert a * 3 == Cost(3, 6, 9, 12)
    assert total([]) == Cost()
    assert (a + b).flops == 55
    assert (a + b).intensity_flops_per_byte == 55 / 44


def test_twice_the_tokens_cost_twice_the_products_with_weights_and_four_times_the_scores():
    once = block_costs(2, 8, 16, 4, 64)
    twice = block_costs(2, 16, 16, 4, 64)
    assert twice["mlp up"].matmul_flops == 2 * once["mlp up"].matmul_flops
    assert twice["scores"].matmul_flops == 4 * once["scores"].matmul_flops
