"""Timings are medians of what was done; rates are work over time. No timing is asserted."""

import time

import pytest
import torch

from course_lib.cost import measure
from course_lib.cost.measure import (
    Machine,
    copy_bytes_per_s,
    matmul_flops_per_s,
    median_time_s,
    memory_bytes_per_s,
)
from course_lib.errors import UserError


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when the timed function says so."""
    now = {"s": 0.0}
    monkeypatch.setattr(time, "perf_counter", lambda: now["s"])
    return now


def test_the_median_leaves_out_warm_up_and_one_slow_call(clock):
    durations = iter([100.0, 1.0, 2.0, 50.0, 3.0, 2.5])

    def work() -> None:
        clock["s"] += next(durations)

    assert median_time_s(work, repeats=5, warmup=1) == 2.5


@pytest.mark.parametrize(("repeats", "warmup"), [(0, 1), (1, -1)])
def test_counts_of_calls_are_checked(repeats, warmup):
    with pytest.raises(UserError, match=f"repeats is {repeats} and warmup {warmup}"):
        median_time_s(lambda: None, repeats, warmup)


def test_matmul_rate_is_two_n_cubed_over_time_and_the_best_size_counts(clock, monkeypatch):
    def mm(a, b, out):
        clock["s"] += 1.0 if a.shape[0] == 4 else 4.0
        return out

    monkeypatch.setattr(torch, "mm", mm)
    assert matmul_flops_per_s(sizes=(4, 6)) == 2 * 4**3 / 1.0
    assert matmul_flops_per_s(sizes=(8,)) == 2 * 8**3 / 4.0


def test_copy_rate_counts_read_and_written_bytes(monkeypatch):
    monkeypatch.setattr(measure, "median_time_s", lambda fn, *rest: (fn(), 0.5)[1])
    assert copy_bytes_per_s(4000) == 2 * 4000 / 0.5


@pytest.mark.parametrize(("copy_s", "scale_s"), [(0.5, 0.25), (0.25, 0.5)])
def test_the_memory_is_as_fast_as_the_better_of_copy_and_scaling(monkeypatch, copy_s, scale_s):
    times_s = iter([copy_s, scale_s])
    monkeypatch.setattr(measure, "median_time_s", lambda fn, *rest: (fn(), next(times_s))[1])
    assert memory_bytes_per_s(4000) == 2 * 4000 / 0.25


@pytest.mark.parametrize("dtype", measure.FLOAT_TYPES)
def test_every_float_type_has_a_rate(dtype):
    assert matmul_flops_per_s(dtype, sizes=(32,), repeats=1) > 0


def test_wrong_requests_are_named():
    with pytest.raises(UserError, match="int64: use one of float64, float32"):
        matmul_flops_per_s(torch.int64)
    with pytest.raises(UserError, match=r"sizes is \[0\]"):
        matmul_flops_per_s(sizes=(0,))
    with pytest.raises(UserError, match="size_bytes is 3"):
        copy_bytes_per_s(3)


def test_the_roofline_bends_at_the_balance():
    machine = Machine(flops_per_s=100.0, bytes_per_s=20.0)
    assert machine.balance_flops_per_byte == 5.0
    assert machine.bound_flops_per_s(2.0) == 40.0
    assert machine.bound_flops_per_s(5.0) == machine.bound_flops_per_s(50.0) == 100.0
