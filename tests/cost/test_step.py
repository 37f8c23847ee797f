"""Counted work against hand counts, torch's own flop counter, and 6 N D."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.config import preset
from course_lib.cost.step import StageWork, WorkCounter, step_flops
from course_lib.train.fit import start_run
from course_lib.train.step import train_step


def test_a_product_an_addition_and_a_view_by_hand():
    a, b = torch.ones(2, 3), torch.ones(3, 5)
    with WorkCounter() as work:
        product = a @ b
    assert (work.flops, work.size_bytes) == (2 * 2 * 3 * 5, 4 * (6 + 15 + 10))
    with WorkCounter() as work:
        product + product
    assert (work.flops, work.size_bytes) == (10, 4 * 30)
    with WorkCounter() as work:
        product.T.reshape(5, 2)[0].view(2)
        torch.empty(1000)
    assert (work.flops, work.size_bytes) == (0, 0)


def test_work_in_place_reads_and_writes():
    a, b = torch.ones(10), torch.ones(10)
    with WorkCounter() as work:
        a.add_(b)
    assert work.size_bytes == 4 * 30
    with WorkCounter() as work:
        torch._foreach_add_([a], [b])  # returns nothing
    assert work.size_bytes >= 4 * 30


def test_products_of_a_whole_step_equal_torchs_counter():
    run = start_run(preset("addition", batch_size=8, layers=1))
    with FlopCounterMode(display=False) as torchs:
        train_step(run.model, run.data, 0, run.optimizer, run.sync, run.config)
    work = StageWork()
    train_step(run.model, run.data, 0, run.optimizer, run.sync, run.config, work.stage)
    counted = work.flops["forward"] + work.flops["backward"]
    products = torchs.get_total_flops()
    assert products <= counted < 1.4 * products  # the rest: norms, GELU, softmax, sums
    assert set(work.flops) == set(work.size_bytes)
    assert work.flops["update"] < 0.1 * counted
    assert work.size_bytes["update"] > 0


def test_six_n_d_is_near_the_count_where_matrices_prevail():
    run = start_run(preset("addition", batch_size=8, width=128))
    work = StageWork()
    train_step(run.model, run.data, 0, run.optimizer, run.sync, run.config, work.stage)
    embeddings = run.model.token_embedding.numel() + run.model.position_embedding.numel()
    predicted = step_flops(run.model.parameter_count() - embeddings, 8 * run.data.context)
    assert 0.9 < (work.flops["forward"] + work.flops["backward"]) / predicted < 1.2
