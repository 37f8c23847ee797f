"""What this machine can do: its matmul peak, its memory bandwidth, and robust timings.

Two numbers bound every stage of a training step: how many FLOPs a second the matrix products reach
at best, and how many bytes a second the memory moves. A stage is held against both in the roofline
(Williams, Waterman, Patterson 2009, "Roofline: An Insightful Visual Performance Model").

A timing is the median of several: another program may slow any one of them down, and none is
faster than the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from course_lib.errors import UserError

FLOAT_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Machine:
    """The two bounds of the roofline, as measured.

    flops_per_s: of the best large matrix product.
    bytes_per_s: memory traffic, read and written bytes together.
    """

    flops_per_s: float
    bytes_per_s: float

    @property
    def balance_flops_per_byte(self) -> float:
        """The intensity at which both bounds meet: below it, memory is what one waits for."""
        return self.flops_per_s / self.bytes_per_s

    def bound_flops_per_s(self, intensity_flops_per_byte: float) -> float:
        """Return the most that work of this intensity can reach: min(peak, intensity x bytes/s)."""
        return min(self.flops_per_s, intensity_flops_per_byte * self.bytes_per_s)


def median_time_s(
    fn: Callable[[], Any], repeats: int = 5, warmup: int = 1, device: str = "cpu"
) -> float:
    """Return the median seconds of `repeats` calls, after `warmup` calls that don't count.

    On a GPU a call returns before its work is done; so the clock is read after a synchronize.

    Args:
        fn: what to time; called without arguments.
        repeats: timed calls, at least 1.
        warmup: calls before them, which fill caches and choose kernels.
        device: "cpu", "cuda" or "mps": what to wait for.

    Raises:
        UserError: repeats below 1 or warmup below 0.
    """
    if repeats < 1 or warmup < 0:
        raise UserError(
            f"repeats is {repeats} and warmup {warmup}: use at least 1 repeat and 0 warm-up calls."
        )
    for _ in range(warmup):
        fn()
    times_s = []
    for _ in range(repeats):
        synchronize(device)
        started_s = time.perf_counter()
        fn()
        synchronize(device)
        times_s.append(time.perf_counter() - started_s)
    return statistics.median(times_s)


def synchronize(device: str = "cpu") -> None:
    """Wait until the device has done all that it was given; the CPU has nothing to wait for."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        torch.cuda.synchronize()
    elif kind == "mps":
        torch.mps.synchronize()


def matmul_flops_per_s(
    dtype: torch.dtype = torch.float32,
    sizes: Sequence[int] = (512, 1024),
    repeats: int = 5,
    device: str = "cpu",
) -> float:
    """Return the matmul peak: the best over `sizes` of 2 n^3 / median seconds of an n x n product.

    Args:
        dtype: a float type.
        sizes: n, each at least 1. Small products don't fill the machine, huge ones take long.
        repeats: timed products for each size.
        device: where.

    Raises:
        UserError: a dtype that is no float type, or a size below 1.
    """
    _check_float(dtype)
    if not sizes or min(sizes) < 1:
        raise UserError(f"sizes is {list(sizes)}: give at least one size, each of at least 1.")
    rates = []
    for size in sizes:
        a = torch.randn(size, size, device=device).to(dtype)
        b = torch.randn(size, size, device=device).to(dtype)
        out = torch.empty_like(a)
        time_s = median_time_s(partial(torch.mm, a, b, out=out), repeats, 1, device)
        rates.append(2 * size**3 / time_s)
    return max(rates)


def copy_bytes_per_s(size_bytes: int = 64 << 20, repeats: int = 5, device: str = "cpu") -> float:
    """Return the memory bandwidth of a copy: 2 x size / median seconds, for read and write.

    Args:
        size_bytes: of the buffer; far larger than the last cache, or the cache is measured.
        repeats: timed copies.
        device: where.

    Raises:
        UserError: a buffer of less than 4 bytes.
    """
    if size_bytes < 4:
        raise UserError(f"size_bytes is {size_bytes}: use at least 4.")
    source = torch.ones(size_bytes // 4, device=device)
    target = torch.zeros_like(source)
    time_s = median_time_s(lambda: target.copy_(source), repeats, 1, device)
    return 2 * source.numel() * source.element_size() / time_s


def memory_bytes_per_s(size_bytes: int = 64 << 20, repeats: int = 5, device: str = "cpu") -> float:
    """Return the memory's bandwidth: the better of a copy and of a scaling in place.

    x *= 1 reads and writes the same lines. A copy may have to fetch each line that it is going to
    overwrite, so it can look slower than the memory is. Arguments and errors: copy_bytes_per_s.
    """
    copied = copy_bytes_per_s(size_bytes, repeats, device)
    values = torch.ones(size_bytes // 4, device=device)
    time_s = median_time_s(lambda: values.mul_(1.0), repeats, 1, device)
    return max(copied, 2 * values.numel() * values.element_size() / time_s)


def measure_machine(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Machine:
    """Measure both bounds of the roofline; takes about a second on a laptop."""
    return Machine(matmul_flops_per_s(dtype, device=device), memory_bytes_per_s(device=device))


def _check_float(dtype: torch.dtype) -> None:
    if dtype not in FLOAT_TYPES:
        names = ", ".join(str(each).removeprefix("torch.") for each in FLOAT_TYPES)
        name = str(dtype).removeprefix("torch.")
        raise UserError(f"dtype is {name}: use one of {names}.")
