"""launch(fn, ...): run a function on fresh ranks, from a notebook cell, a script or a test.

`launch` raises when a rank fails; `run_ranks` never does and returns everything there is to know.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.errors import UserError
from course_lib.ranks import payload, placement, processes, report, runtime
from course_lib.ranks.interrupts import InterruptGate, held_interrupts
from course_lib.ranks.supervise import RankOutcome, Supervisor


@dataclass
class Outcome:
    """Everything there is to know about a run on ranks.

    Attributes:
        ranks: how each rank ended, in rank order (error, output, where it stood, ...).
        results: each rank's result, None where there is none.
        timed_out: whether the time limit ended it.
        interrupted: whether an interrupt ended it.
        wall_s: seconds from the call to the last rank's end.
    """

    ranks: list[RankOutcome]
    results: list[Any]
    timed_out: bool
    interrupted: bool
    timeout_s: float
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether every rank returned."""
        return all(rank.packed_result is not None for rank in self.ranks)

    @property
    def output(self) -> list[list[str]]:
        """The lines that each rank printed."""
        return [rank.output.lines() for rank in self.ranks]

    @property
    def first_failure(self) -> RankOutcome | None:
        """The rank that failed first by itself, None if none did."""
        return report.first_cause(self.ranks)

    def error(self) -> report.RankError | None:
        """The failure in words, None if every rank returned."""
        if self.ok or self.interrupted:
            return None
        if self.first_failure is not None:
            return report.explain_failure(self.ranks)
        return report.explain_timeout(self.ranks, self.timeout_s)


def launch(
    fn: Callable[..., Any],
    *args: Any,
    world_size: int = 4,
    timeout_s: float = 60.0,
    seed: int = 0,
    device: str | None = None,
    quiet: bool = False,
    on_event: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Run `fn(*args)` on `world_size` fresh ranks and return their results, in rank order.

    Each rank is a process of its own with torch.distributed initialised. It gets a copy of `fn`,
    `args` and the globals that `fn` uses: what a rank changes is not changed here, so return it.
    What ranks print appears here, prefixed, in rank order.

    Args:
        fn: a function, defined anywhere, also in a notebook cell.
        args: its arguments, the same for every rank; tensors arrive on the CPU.
        world_size: how many ranks, 1 to 64.
        timeout_s: the time limit in seconds.
        seed: rank r starts with torch, random and NumPy seeded by seed + r.
        device: "cpu" or "cuda"; None chooses GPUs only where each rank has one.
        quiet: whether to keep what the ranks print to yourself.
        on_event: called here with (rank, event) for each `runtime.emit(event)` in a rank.

    Raises:
        UserError: an argument is wrong, or can't be sent to a rank.
        RankError: a rank failed; the text has the first cause, its rank and its line.
        RankTimeoutError: the time limit was reached; the text says where each rank was.
    """
    outcome = run_ranks(
        fn,
        *args,
        world_size=world_size,
        timeout_s=timeout_s,
        seed=seed,
        device=device,
        quiet=quiet,
        on_event=on_event,
    )
    if outcome.interrupted:
        print(f"interrupted: {world_size} rank{'s' * (world_size != 1)} ended, none is left")
        raise KeyboardInterrupt
    error = outcome.error()
    if error is None:
        return outcome.results
    first = outcome.first_failure
    if first is not None and first.error is not None and "UserError" in first.error["bases"]:
        raise UserError(first.error["message"]) from error
    raise error


def run_ranks(
    fn: Callable[..., Any],
    *args: Any,
    world_size: int = 4,
    timeout_s: float = 60.0,
    seed: int = 0,
    device: str | None = None,
    quiet: bool = True,
    on_event: Callable[[int, Any], None] | None = None,
    start: str | None = None,
) -> Outcome:
    """Run `fn(*args)` on fresh ranks and return all that happened; see `launch` for the arguments.

    Never raises for what the ranks did, an interrupt included; no process is left on return.

    Args:
        start: "fork" or "spawn"; None chooses by the platform.

    Raises:
        UserError: an argument is wrong, or can't be sent to a rank.
    """
    started_s = time.monotonic()
    size = placement.check_world_size(world_size)
    limit_s = placement.check_timeout(timeout_s)
    _refuse_nesting()
    call, sources = payload.pack_call(fn, args)
    if not quiet and size > max(8, placement.usable_cpus()):
        print(f"{size} ranks share this machine's cores: expect them to take turns")
    method = start or placement.choose_start().value
    with held_interrupts() as gate, _store_file() as store_file:
        jobs = [
            _job(rank, size, call, sources, limit_s, seed, device, store_file, method)
            for rank in range(size)
        ]
        ranks = processes.start_ranks(size, method)
        supervisor = _supervise(ranks, jobs, gate, limit_s, method, quiet, on_event)
    results = [
        None if rank.packed_result is None else payload.loads(rank.packed_result)
        for rank in supervisor.ranks
    ]
    return Outcome(
        supervisor.ranks,
        results,
        supervisor.timed_out,
        supervisor.interrupted,
        limit_s,
        time.monotonic() - started_s,
    )


def _supervise(
    ranks: list[Any],
    jobs: list[dict[str, Any]],
    gate: InterruptGate,
    timeout_s: float,
    method: str,
    quiet: bool,
    on_event: Callable[[int, Any], None] | None,
) -> Supervisor:
    """Run the jobs, end the ranks whatever happens, and show their output in rank order."""
    show = None if quiet else _print_line
    supervisor = Supervisor(ranks, jobs, gate, timeout_s, show, on_event)
    try:
        supervisor.run()
    finally:
        all_well = all(rank.closed for rank in supervisor.ranks)
        keep = method == "spawn" and all_well
        if not keep:
            processes.wait_or_kill(ranks, patience_s=1.0 if all_well else 0.0)
        supervisor.drain()
        if keep:
            processes.keep_warm(ranks)
        else:
            processes.release(ranks)
    for rank in supervisor.ranks:
        rank.output.finish()
        if show is not None and rank.rank > 0:
            for line in rank.output.lines():
                show(rank.rank, line)
    return supervisor


def _print_line(rank: int, line: str) -> None:
    print(f"[rank {rank}] {line}", flush=True)


def _job(
    rank: int,
    size: int,
    call: bytes,
    sources: dict[str, str],
    timeout_s: float,
    seed: int,
    device: str | None,
    store_file: str,
    method: str,
) -> dict[str, Any]:
    """Describe one rank's part: who it is, the parent's surroundings, and the call."""
    identity = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "GROUP_RANK": 0,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "COURSE_RANK": rank,
    }
    environment = dict(os.environ) | {name: str(value) for name, value in identity.items()}
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return {
        "environment": environment,
        "folder": os.getcwd(),
        "path": [entry or os.getcwd() for entry in sys.path],
        "argv": list(sys.argv),
        "call": call,
        "sources": sources,
        "timeout_s": timeout_s,
        "seed": seed,
        "device": device,
        "store_file": store_file,
        "last": method == "fork",
    }


class _store_file:
    """Names a fresh file for the store where a TCP store can't be used, and removes it."""

    def __enter__(self) -> str:
        self._folder = None
        if placement.choose_store().value == "tcp":
            return ""
        self._folder = tempfile.TemporaryDirectory(prefix="course_ranks_")
        return os.path.join(self._folder.name, "store")

    def __exit__(self, *details: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _refuse_nesting() -> None:
    if runtime.inside_launch():
        raise UserError(
            f"launch was called inside rank {runtime.rank()}: call it from the notebook itself, "
            "and in a rank use torch.distributed among the ranks that are there."
        )
