"""Who am I: rank, world_size, device and backend, in every place where the course's code runs.

Inside `launch`, inside `%%ranks`, under `torchrun`, and in one plain process, which is rank 0 of 1
and needs no process group.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from course_lib.ranks.placement import (
    Choice,
    choose_backend,
    choose_interface,
    choose_threads,
    usable_cpus,
)

if TYPE_CHECKING:
    import torch

_choice: Choice | None = None
_send_event: Callable[[Any], None] | None = None


def rank() -> int:
    """Return this process's rank: 0 to world_size - 1; 0 in a plain process."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of ranks; 1 in a plain process."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """Return this rank's number on its own machine, which is also its GPU's number."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")))


def local_world_size() -> int:
    """Return the number of ranks on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))


def inside_launch() -> bool:
    """Tell whether this process is a rank that `launch` or `%%ranks` started."""
    return "COURSE_RANK" in os.environ


def is_distributed() -> bool:
    """Tell whether a process group exists, so that collectives can be called."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def backend_choice(device: str | None = None) -> Choice:
    """Return the backend for this group and why: NCCL only where each rank has a GPU.

    Args:
        device: "cpu" or "cuda" to overrule; None takes COURSE_DEVICE, else the library's choice.
    """
    import torch
    import torch.distributed as dist

    if device is None and _choice is not None:
        return _choice
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    nccl = dist.is_available() and dist.is_nccl_available()
    asked = device or os.environ.get("COURSE_DEVICE")
    return choose_backend(local_world_size(), gpus, nccl, asked)


def backend() -> str:
    """Return the backend's name: "gloo" or "nccl"."""
    return backend_choice().value


def device() -> torch.device:
    """Return where this rank's tensors live: its own GPU with NCCL, else the CPU."""
    import torch

    if backend_choice().value == "nccl":
        return torch.device("cuda", local_rank())
    return torch.device("cpu")


def emit(event: Any) -> None:
    """Send a picklable event to the process that called `launch(..., on_event=...)`.

    Does nothing where nobody listens: in a plain process and under torchrun.
    """
    if _send_event is not None:
        _send_event(event)


def set_threads() -> Choice:
    """Give torch this rank's share of the CPUs and return how many and why."""
    import torch

    choice = choose_threads(local_world_size(), usable_cpus(), os.environ)
    torch.set_num_threads(int(choice.value))
    return choice


def set_seed(seed: int) -> None:
    """Seed torch, random and NumPy with `seed + rank`: each rank draws numbers of its own."""
    import random
    import sys

    import torch

    torch.manual_seed(seed + rank())
    random.seed(seed + rank())
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed((seed + rank()) % 2**32)


@contextlib.contextmanager
def process_group(device: str | None = None, timeout_s: float = 600.0) -> Iterator[None]:
    """Hold a process group for the block where one is needed and none is there.

    Inside a launch the group exists already and stays; under torchrun it is made and destroyed; a
    plain process needs none.

    Args:
        device: "cpu" or "cuda" to overrule the library's choice.
        timeout_s: how long a collective may wait for the other ranks, in seconds.
    """
    global _choice
    _choice = backend_choice(device)
    set_threads()
    if world_size() == 1 or is_distributed():
        yield
        return
    import torch.distributed as dist

    start_group(timeout_s=timeout_s, store=None)
    try:
        yield
    finally:
        dist.destroy_process_group()


def start_group(timeout_s: float, store: Any | None) -> None:
    """Initialise torch.distributed with this rank's backend.

    Args:
        timeout_s: how long a collective may wait, in seconds.
        store: where the ranks meet; None takes MASTER_ADDR and MASTER_PORT, as torchrun sets them.
    """
    import torch
    import torch.distributed as dist

    if local_world_size() == world_size():
        interface = choose_interface(os.environ)
        if interface is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = interface.value
    options: dict[str, Any] = {"timeout": datetime.timedelta(seconds=timeout_s)}
    if store is not None:
        options |= {"store": store, "rank": rank(), "world_size": world_size()}
    if backend() == "nccl":
        torch.cuda.set_device(local_rank())  # first, or every rank opens a context on GPU 0
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device(), **options)
    else:
        dist.init_process_group("gloo", **options)


def configure(choice: Choice | None, send_event: Callable[[Any], None] | None) -> None:
    """Set what the worker knows: the backend chosen for this job and where events go."""
    global _choice, _send_event
    _choice = choice
    _send_event = send_event
