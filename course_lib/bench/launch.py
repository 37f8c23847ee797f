"""`course bench launch`: four ranks with one all_reduce done, against the other ways to start them.

Start-up: ours against torch.multiprocessing.spawn, torchrun and an ipyparallel cluster, cold (the
first time) and warm (again in the same process). Then a cell: an all_reduce on four ranks that
stand ready, `%%ranks` against a standing ipyparallel cluster.
"""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from course_lib.bench import _launch_peers as peers
from course_lib.bench.result import BenchResult

WORLD_SIZE = 4
OUR_STARTS, PEER_STARTS, CELLS = 15, 3, 200
_CELL = "dist.all_reduce(x)"


def run() -> BenchResult:
    """Measure all ways in turn and return how much faster ours is than the best of the others."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rows = [_ours(), _spawn(), _torchrun(), *_ipyparallel()]
    ours, others = rows[0], rows[1:]
    best = min(others, key=lambda row: row["warm_s"])
    notes = [
        f"Seconds from the call to four ranks with one all_reduce done and their results back; "
        f"warm is the median of {OUR_STARTS} starts of ours and {PEER_STARTS} of each peer.",
        f"The speed is ours, warm, against the best peer: {best['way']}.",
        f"cell_ms: the median of {CELLS} cells `{_CELL}` on four ranks that stand ready.",
    ]
    return BenchResult("launch", best["warm_s"] / ours["warm_s"], rows, notes)


def _row(way: str, starts_s: list[float], cells_s: list[float] | None = None) -> dict[str, Any]:
    """Describe one way: its first start, the median of the later ones, the median cell."""
    later = starts_s[1:] or starts_s
    cell_ms = round(statistics.median(cells_s) * 1e3, 3) if cells_s else None
    return {
        "way": way,
        "cold_s": round(starts_s[0], 4),
        "warm_s": round(statistics.median(later), 4),
        "slowest_warm_s": round(max(later), 4),
        "cell_ms": cell_ms,
    }


def _timed(action: Callable[[], Any], times: int) -> list[float]:
    """Return the seconds of each of `times` runs."""
    seconds = []
    for _ in range(times):
        start_s = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start_s)
    return seconds


def _sum_ones() -> float:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(peers.SHAPE)
    dist.all_reduce(tensor)
    return float(tensor[0])


def _ours() -> dict[str, Any]:
    from course_lib.ranks import launch, processes
    from course_lib.ranks.pool import Pool

    def start() -> None:
        assert launch(_sum_ones, world_size=WORLD_SIZE) == [float(WORLD_SIZE)] * WORLD_SIZE

    processes.stop_everything()
    starts_s = _timed(start, 1)
    time.sleep(3.0)  # the process that ranks are forked from loads the rest while it is idle
    starts_s += _timed(start, OUR_STARTS)
    pool = Pool(WORLD_SIZE)
    pool.run_cell(f"x = torch.ones({peers.SHAPE})", show=None)
    cells_s = _timed(lambda: pool.run_cell(_CELL, show=None), CELLS)
    pool.stop()
    return _row("course_lib", starts_s, cells_s)


def _spawn() -> dict[str, Any]:
    import torch.multiprocessing as mp

    def start() -> None:
        with tempfile.TemporaryDirectory() as folder:
            address = f"file://{folder}/store"
            mp.spawn(peers.spawned, (WORLD_SIZE, address), nprocs=WORLD_SIZE)

    return _row("torch.multiprocessing.spawn", _timed(start, 1 + PEER_STARTS))


def _torchrun() -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={WORLD_SIZE}", "-m", "course_lib.bench._launch_peers"),
    ]

    def start() -> None:
        subprocess.run(command, check=True, capture_output=True)

    return _row("torchrun", _timed(start, 1 + PEER_STARTS))


def _ipyparallel() -> list[dict[str, Any]]:
    """Measure a cluster, or nothing where ipyparallel is not installed."""
    with contextlib.suppress(ImportError):
        import ipyparallel

        starts_s: list[float] = []
        cells_s: list[float] = []
        for number in range(1 + PEER_STARTS):
            start_s = time.perf_counter()
            with _cluster(ipyparallel) as view:
                starts_s.append(time.perf_counter() - start_s)
                if number == PEER_STARTS:
                    view.execute(f"x = torch.ones({peers.SHAPE})", block=True)
                    run_cell = functools.partial(view.execute, _CELL, block=True)
                    cells_s = _timed(run_cell, CELLS)
        return [_row("ipyparallel cluster", starts_s, cells_s)]
    return []


@contextlib.contextmanager
def _cluster(ipyparallel: Any) -> Iterator[Any]:
    """Start a cluster whose engines have joined a group and done one all_reduce."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ipyparallel.Cluster(n=WORLD_SIZE, log_level=40) as client,
    ):
        view = client[:]
        view.scatter("number", range(WORLD_SIZE), flatten=True, block=True)
        view.execute(
            "import torch, torch.distributed as dist\n"
            "torch.set_num_threads(1)\n"
            f"dist.init_process_group('gloo', 'file://{folder}/store', rank=number, "
            f"world_size={WORLD_SIZE})\n"
            f"x = torch.ones({peers.SHAPE}); dist.all_reduce(x)",
            block=True,
        )
        yield view
