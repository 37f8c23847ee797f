"""Decisions about a group of ranks, each with its reason: backend, threads, interface, store.

Pure functions of what the machine has, so that a machine with eight GPUs or a Windows laptop can be
tested on any other.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_WORLD_SIZE = 64

# What ranks are born with, unless the user has set it.
RANK_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # threads of ranks that wait must not spin on the cores
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # when a rank dies, torch warns with pages of C++ frames
    "TORCH_FR_BUFFER_SIZE": "0",  # torch's own record of 2,000 collectives grows by 3 MB a rank
}


@dataclass(frozen=True)
class Choice:
    """A decision and the reason for it, as `%ranks status` and `course doctor` show them."""

    value: str
    reason: str


def choose_backend(
    world_size: int, gpus: int, nccl_available: bool, device: str | None = None
) -> Choice:
    """Choose gloo or NCCL: NCCL only where every rank has a GPU of its own.

    Args:
        world_size: ranks on this machine.
        gpus: visible GPUs.
        nccl_available: whether this build of torch has NCCL.
        device: "cpu" or "cuda" to overrule; None lets the library choose.
    """
    if device == "cpu":
        return Choice("gloo", "the CPU was asked for")
    if gpus == 0:
        return Choice("gloo", "no GPU is visible")
    if not nccl_available:
        return Choice("gloo", "this build of torch has no NCCL")
    if gpus < world_size:
        return Choice(
            "gloo",
            f"{world_size} ranks but {gpus} visible GPU{'s' * (gpus != 1)}: "
            "NCCL needs a GPU for each rank",
        )
    return Choice("nccl", f"{gpus} visible GPUs for {world_size} ranks")


def usable_cpus() -> int:
    """Count the CPUs that this process may use (its affinity, not the machine's total)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_threads(world_size: int, cpus: int, environment: Mapping[str, str]) -> Choice:
    """Choose torch's threads for each rank: ranks that fight for cores are ten times slower."""
    share = max(1, cpus // world_size)
    asked = environment.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and 0 < int(asked) < share:
        return Choice(asked, "OMP_NUM_THREADS is set")
    return Choice(str(share), f"{cpus} usable CPUs // {world_size} ranks, at least 1")


def loopback_interface(names: list[str] | None = None) -> str | None:
    """Name the loopback interface (`lo` on Linux, `lo0` on macOS); None where none is found."""
    if names is None:
        names = [name for _, name in socket.if_nameindex()]
    for candidate in ("lo", "lo0"):
        if candidate in names:
            return candidate
    return next((name for name in names if name.startswith("lo")), None)


def choose_interface(
    environment: Mapping[str, str], names: list[str] | None = None
) -> Choice | None:
    """Choose gloo's network interface: loopback, so that the host's own name need not resolve."""
    asked = environment.get("GLOO_SOCKET_IFNAME")
    if asked:
        return Choice(asked, "GLOO_SOCKET_IFNAME is set")
    name = loopback_interface(names)
    return Choice(name, "the ranks are all on this machine") if name else None


def choose_store(platform: str = sys.platform) -> Choice:
    """Choose how ranks find each other: a TCP store on loopback, or a file on Windows.

    torch's Windows wheels lack libuv, and without it a store can't take over a bound socket.
    """
    if platform == "win32":
        return Choice("file", "torch's Windows wheels lack libuv")
    return Choice("tcp", "a socket that is bound before it is named can't be taken by another")


@contextlib.contextmanager
def store_file() -> Iterator[str]:
    """Name a fresh file for the store where TCP can't be used, and remove it; else give ""."""
    if choose_store().value == "tcp":
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="course_ranks_", ignore_cleanup_errors=True) as folder:
        yield os.path.join(folder, "store")


def choose_start(platform: str = sys.platform) -> Choice:
    """Choose how ranks start: forked from a process without threads, or spawned and kept."""
    if platform.startswith("linux"):
        return Choice("fork", "forked from a process of ours that has torch loaded and no threads")
    return Choice("spawn", "fork is not safe here; ranks are kept warm between launches")


def check_world_size(world_size: object) -> int:
    """Return `world_size` as an int.

    Raises:
        UserError: it is not a whole number from 1 to 64.
    """
    from course_lib.errors import UserError

    index = getattr(world_size, "__index__", None)
    if index is None or isinstance(world_size, bool) or not 1 <= index() <= MAX_WORLD_SIZE:
        raise UserError(
            f"world_size is {world_size!r}: give a whole number from 1 to {MAX_WORLD_SIZE}, "
            "for example world_size=4."
        )
    return int(index())


def check_timeout(timeout_s: object) -> float:
    """Return `timeout_s` as a float.

    Raises:
        UserError: it is not a positive number of seconds.
    """
    from course_lib.errors import UserError

    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < float(timeout_s) < 1e7:  # type: ignore[arg-type]
        raise UserError(
            f"timeout_s is {timeout_s!r}: give a positive number of seconds, for example 60."
        )
    return float(timeout_s)  # type: ignore[arg-type]
