"""launch(fn, ...): run a function on fresh ranks, from a notebook cell, a script or a test.

`launch` raises when a rank fails; `run_ranks` never does and returns everything there is to know.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.errors import UserError
from course_lib.ranks import payload, placement, processes, report, runtime
from course_lib.ranks.blackboard import Blackboard
from course_lib.ranks.interrupts import held_interrupts
from course_lib.ranks.jobs import Job, membership
from course_lib.ranks.supervise import RankOutcome, Supervisor
from course_lib.ranks.waits import Stuck, operation_text


@dataclass
class Outcome:
    """Everything there is to know about a run on ranks.

    Attributes:
        ranks: how each rank ended, in rank order (error, output, where it stood, ...).
        results: each rank's result, None where there is none.
        timed_out: whether the time limit ended it.
        interrupted: whether an interrupt ended it.
        stuck: the ranks that could never go on, if that ended it.
        mismatch: calls that should have met but don't fit, in words.
        waits: the operation that a rank waited in when it was stopped, by rank.
        timeout_s: the time limit that it had.
        wall_s: seconds from the call to the last rank's end.
    """

    ranks: list[RankOutcome]
    results: list[Any]
    timed_out: bool
    interrupted: bool
    stuck: list[Stuck]
    mismatch: str | None
    waits: dict[int, str]
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
        if self.stuck:
            return report.explain_stuck(self.ranks, self.stuck)
        if self.first_failure is not None:
            return report.explain_failure(self.ranks, self.mismatch)
        return report.explain_timeout(self.ranks, self.timeout_s, self.waits)


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
        RankDeadlockError: ranks wait for each other for ever; the text says who and where.
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
    refuse_nesting()
    call, sources = payload.pack_call(fn, args)
    if not quiet and size > max(8, placement.usable_cpus()):
        print(f"{size} ranks share this machine's cores: expect them to take turns")
    method = start or placement.choose_start().value
    board = Blackboard.create(size)
    try:
        with held_interrupts() as gate, placement.store_file() as store_file:
            tasks = {}
            for rank in range(size):
                place = membership(
                    rank,
                    size,
                    timeout_s=limit_s,
                    seed=seed,
                    device=device,
                    board=board.path,
                    store_file=store_file,
                )
                last = method == "fork"
                tasks[rank] = Job(place, call=call, sources=sources, leave=True, last=last)
            show = None if quiet else print_line
            ranks = processes.start_ranks(size, method)
            supervisor = Supervisor(ranks, tasks, board, gate, limit_s, show, on_event)
            _run_and_end(supervisor, ranks, method)
        show_output(supervisor.ranks, show)
        waits = waiting_in(board, supervisor)
    finally:
        board.close()
    return outcome_of(supervisor, limit_s, time.monotonic() - started_s, waits)


def outcome_of(
    supervisor: Supervisor, timeout_s: float, wall_s: float, waits: dict[int, str]
) -> Outcome:
    """Gather what a supervisor saw; results are unpacked here."""
    results = [
        None if rank.packed_result is None else payload.loads_apart(rank.packed_result)
        for rank in supervisor.ranks
    ]
    return Outcome(
        ranks=supervisor.ranks,
        results=results,
        timed_out=supervisor.timed_out,
        interrupted=supervisor.interrupted,
        stuck=supervisor.stuck,
        mismatch=supervisor.mismatch,
        waits=waits,
        timeout_s=timeout_s,
        wall_s=wall_s,
    )


def waiting_in(board: Blackboard, supervisor: Supervisor) -> dict[int, str]:
    """Return, for each rank that was stopped while it waited, the operation in words."""
    waits = {}
    for rank in supervisor.ranks:
        note = board.read(rank.rank) if rank.packed_result is None else None
        if note is not None and note["blocked"] is not None:
            waits[rank.rank] = operation_text(note["blocked"])
    return waits


def _run_and_end(supervisor: Supervisor, ranks: list[Any], method: str) -> None:
    """Run the job and end the ranks whatever happens; spawned ones that are well are kept."""
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


def show_output(ranks: list[RankOutcome], show: Callable[[int, str], None] | None) -> None:
    """End all output and show what has not been shown yet, in rank order."""
    for place, rank in enumerate(ranks):
        rank.output.finish()
        if show is not None and place > 0:
            for line in rank.output.lines():
                show(rank.rank, line)


def print_line(rank: int, line: str) -> None:
    """Show one line of a rank's output."""
    print(f"[rank {rank}] {line}")


def refuse_nesting() -> None:
    """Raise a UserError inside a rank: ranks of ranks would be a flood of processes."""
    if runtime.inside_launch():
        raise UserError(
            f"launch was called inside rank {runtime.rank()}: call it from the notebook itself, "
            "and in a rank use torch.distributed among the ranks that are there."
        )
