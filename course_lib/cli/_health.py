"""What `course doctor` looks at: each look returns one finding, with the mend where it is ill."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

RANKS = 4
OLDEST_PYTHON = (3, 11)
SMALL_SHARED_MEMORY_BYTES = 64 * 2**20
SMALL_MEMORY_BYTES = 2 * 2**30
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """One thing looked at: its state is "ok", "warning" (works, but note) or "ill" (mend it)."""

    name: str
    state: str
    value: str
    mend: str = ""


def safely(look: Callable[[], Finding]) -> Finding:
    """Return what the look finds; a look that fails is a finding too, never a traceback."""
    try:
        return look()
    except Exception as error:
        name = look.__name__.replace("_", " ")
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return Finding(name, "ill", said, "run make lab again; it installs what the course needs")


def python() -> Finding:
    """Look at the interpreter: 3.11 or newer."""
    value = f"{platform.python_version()} ({sys.executable})"
    if tuple(sys.version_info[:2]) < OLDEST_PYTHON:
        return Finding("python", "ill", value, "install Python 3.11 or newer")
    return Finding("python", "ok", value)


def torch() -> Finding:
    """Look at torch: installed, in the range the course supports, able to talk between ranks."""
    from packaging.requirements import Requirement

    try:
        found = version("torch")
    except PackageNotFoundError:
        return Finding("torch", "ill", "not installed", "pip install torch==2.13.0")
    wanted = next(
        (r for text in requires("course-lib") or [] if (r := Requirement(text)).name == "torch"),
        Requirement("torch"),
    )
    if not wanted.specifier.contains(found.split("+")[0], prereleases=True):
        mend = f"the course needs torch{wanted.specifier}: pip install torch==2.13.0"
        return Finding("torch", "ill", found, mend)
    import torch.distributed as dist

    if not dist.is_available():
        mend = "install a build with torch.distributed"
        return Finding("torch", "ill", f"{found}, without torch.distributed", mend)
    return Finding("torch", "ok", found)


def backend() -> Finding:
    """Look at which backend ranks will talk through, and why."""
    import torch as torch_module
    import torch.distributed as dist

    from course_lib.ranks.placement import choose_backend

    gpus = torch_module.cuda.device_count() if torch_module.cuda.is_available() else 0
    choice = choose_backend(RANKS, gpus, dist.is_nccl_available(), os.environ.get("COURSE_DEVICE"))
    return Finding("backend", "ok", f"{choice.value} for {RANKS} ranks: {choice.reason}")


def cores() -> Finding:
    """Look at the CPUs this process may use, and at each rank's share of them."""
    from course_lib.ranks.placement import choose_threads, usable_cpus

    usable = usable_cpus()
    threads = choose_threads(RANKS, usable, os.environ)
    value = f"{usable} usable; {threads.value} thread(s) a rank at {RANKS} ranks ({threads.reason})"
    if usable < 2:
        return Finding("cores", "warning", value, "ranks will take turns; timings mean little")
    return Finding("cores", "ok", value)


def memory() -> Finding:
    """Look at the free memory: four ranks of the course need under 2 GiB."""
    import psutil

    free = psutil.virtual_memory().available
    value = f"{free / GIB:.1f} GiB free"
    if free < SMALL_MEMORY_BYTES:
        return Finding("memory", "warning", value, "close other programs; the course needs 2 GiB")
    return Finding("memory", "ok", value)


def shared_memory() -> Finding:
    """Look at /dev/shm, which containers often make tiny."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Finding("/dev/shm", "ok", "none on this system; the course does not need it")
    size = shutil.disk_usage(folder).total
    value = f"{size / GIB:.2f} GiB"
    if size < SMALL_SHARED_MEMORY_BYTES:
        mend = "start the container with --shm-size=1g before you use data loader workers"
        return Finding("/dev/shm", "warning", value, mend)
    return Finding("/dev/shm", "ok", value)


def loopback() -> Finding:
    """Look at the interface that ranks of one machine talk over."""
    from course_lib.ranks.placement import choose_interface

    choice = choose_interface(os.environ)
    if choice is None:
        mend = "set GLOO_SOCKET_IFNAME to your loopback interface's name"
        return Finding("loopback", "warning", "none is called lo or lo0", mend)
    return Finding("loopback", "ok", f"{choice.value}: {choice.reason}")


def gpus() -> Finding:
    """Look at the GPUs. None is fine: the whole course runs without."""
    import torch as torch_module

    if not torch_module.cuda.is_available():
        return Finding("GPUs", "ok", "none; the course does not need one")
    count = torch_module.cuda.device_count()
    names = sorted({torch_module.cuda.get_device_name(index) for index in range(count)})
    return Finding("GPUs", "ok", f"{count}: {', '.join(names)}")


def jupyterlab() -> Finding:
    """Look at JupyterLab and its kernel."""
    found = {name: version(name) for name in ("jupyterlab", "ipykernel", "ipywidgets")}
    return Finding("JupyterLab", "ok", ", ".join(f"{name} {v}" for name, v in found.items()))


def _rank_of_group() -> float:
    """Run in each rank: the sum of all ranks' numbers, by a real all_reduce."""
    import torch as torch_module
    import torch.distributed as dist

    total = torch_module.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    return total.item()


def four_ranks() -> Finding:
    """Start four real ranks twice: only the second start is what a notebook's cell waits for."""
    from course_lib.ranks import launch

    start = time.perf_counter()
    launch(_rank_of_group, world_size=RANKS)
    middle = time.perf_counter()
    sums = launch(_rank_of_group, world_size=RANKS)
    end = time.perf_counter()
    if sums != [6.0] * RANKS:
        return Finding("four ranks", "ill", f"all_reduce gave {sums}, not 6", "reinstall torch")
    value = f"all_reduce is right; {middle - start:.2f} s the first time, {end - middle:.2f} s then"
    return Finding("four ranks", "ok", value)


LOOKS: tuple[Callable[[], Finding], ...] = (
    *(python, torch, backend, cores, memory, shared_memory, loopback, gpus, jupyterlab, four_ranks),
)
