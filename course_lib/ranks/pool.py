"""Standing ranks: they keep their variables from one notebook cell to the next.

After a failure the ranks get a new process group and keep their variables. Only where a rank has
died, or can't be got out of compiled code, all are started again, and the text says so.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lib.errors import UserError
from course_lib.ranks import cells, launching, payload, placement, processes, tracebacks
from course_lib.ranks.blackboard import Blackboard
from course_lib.ranks.interrupts import InterruptGate, held_interrupts
from course_lib.ranks.jobs import Job, membership
from course_lib.ranks.launching import Outcome
from course_lib.ranks.report import RankError
from course_lib.ranks.supervise import Supervisor

_JOIN_S = 60.0
_SHORT_S = 30.0

RESTARTED = "the ranks are started again: their variables are gone"
KEPT = "the ranks keep their variables and have a new process group"


class Pool:
    """`world_size` ranks that stand ready; starts them with the first piece of work.

    Args:
        world_size: how many, 1 to 64.
        seed: rank r starts with torch, random and NumPy seeded by seed + r.
        device: "cpu" or "cuda"; None chooses GPUs only where each rank has one.
        start: "fork" or "spawn"; None chooses by the platform.

    Raises:
        UserError: world_size is not a whole number from 1 to 64.
    """

    def __init__(
        self,
        world_size: int = 4,
        seed: int = 0,
        device: str | None = None,
        start: str | None = None,
    ) -> None:
        launching.refuse_nesting()
        self.world_size = placement.check_world_size(world_size)
        self.seed = seed
        self.device = device
        self.method = start or placement.choose_start().value
        self._ranks: list[Any] = []
        self._board: Blackboard | None = None

    @property
    def running(self) -> bool:
        """Whether the ranks are there."""
        return bool(self._ranks) and all(rank.exit_code() is None for rank in self._ranks)

    def run_cell(
        self,
        source: str,
        only: Sequence[int] | None = None,
        timeout_s: float = 60.0,
        show: Callable[[int, str], None] | None = launching.print_line,
    ) -> Outcome:
        """Run a cell's source on the ranks, in the variables that earlier cells left there.

        Args:
            source: Python source; the value of a last expression is printed.
            only: the ranks to run it on; None means all.
            timeout_s: the time limit in seconds.
            show: called with (rank, line) for what they print; None prints nothing.

        Raises:
            SyntaxError: the source is no Python; the ranks don't hear of it.
            UserError: a rank in `only` is not there, or the time limit is no positive number.
            RankError: a rank failed; the ranks are usable again, and the text says in which state.
            KeyboardInterrupt: the cell was interrupted; the ranks are usable again.
        """
        ast.parse(source, "this cell")  # a syntax error need not disturb the ranks
        file_name = tracebacks.new_cell_file()
        sources = {file_name: source}
        payload.remember_sources(sources)
        job = Job(cell=source, cell_file=file_name, sources=sources)
        return self._run(job, only, timeout_s, show)

    def call(
        self,
        fn: Callable[..., Any],
        *args: Any,
        only: Sequence[int] | None = None,
        timeout_s: float = 60.0,
    ) -> list[Any]:
        """Call `fn(*args)` on the ranks and return their results; see `run_cell` for the rest."""
        data, sources = payload.pack_call(fn, args)
        return self._run(Job(call=data, sources=sources), only, timeout_s, None).results

    def push(self, values: Mapping[str, Any], only: Sequence[int] | None = None) -> None:
        """Set variables in the ranks to copies of these values."""
        self.call(cells.push, dict(values), only=only)

    def pull(self, name: str, only: Sequence[int] | None = None) -> list[Any]:
        """Return copies of a variable, one for each rank asked, in rank order."""
        return self.call(cells.pull, name, only=only)

    def status(self) -> list[dict[str, Any]]:
        """Return what each rank knows about itself (see cells.status)."""
        return self.call(cells.status, timeout_s=_SHORT_S)

    def stop(self) -> None:
        """End the ranks; their variables are gone."""
        ranks, self._ranks = self._ranks, []
        with held_interrupts():
            processes.end_ranks(ranks)
            if self._board is not None:
                self._board.close()
                self._board = None

    def _run(
        self,
        job: Job,
        only: Sequence[int] | None,
        timeout_s: float,
        show: Callable[[int, str], None] | None,
    ) -> Outcome:
        """Run one job on some of the ranks; on a failure make them usable and raise."""
        limit_s = placement.check_timeout(timeout_s)
        numbers = self._check_ranks(only)
        started_s = time.monotonic()
        note = ""
        with held_interrupts() as gate:
            if not self.running:
                self._start(gate)
            assert self._board is not None
            jobs = {rank: job for rank in numbers}
            supervisor = self._supervisor(jobs, gate, limit_s, show)
            supervisor.run()
            supervisor.drain()
            waits = launching.waiting_in(self._board, supervisor)
            if not all(rank.packed_result is not None for rank in supervisor.ranks):
                note = self._make_usable(supervisor)
        launching.show_output(supervisor.ranks, show)
        wall_s = time.monotonic() - started_s
        outcome = launching.outcome_of(supervisor, limit_s, wall_s, waits)
        _raise_failure(outcome, note)
        return outcome

    def _check_ranks(self, only: Sequence[int] | None) -> list[int]:
        if only is None:
            return list(range(self.world_size))
        for rank in only:
            if not 0 <= rank < self.world_size:
                raise UserError(
                    f"there is no rank {rank}: the ranks are 0 to {self.world_size - 1}."
                )
        return sorted(set(only))

    def _supervisor(
        self,
        jobs: dict[int, Job],
        gate: InterruptGate,
        timeout_s: float,
        show: Callable[[int, str], None] | None = None,
    ) -> Supervisor:
        assert self._board is not None
        return Supervisor(self._ranks, jobs, self._board, gate, timeout_s, show, keep=True)

    def _start(self, gate: InterruptGate) -> None:
        """Start the ranks and let them join their first group.

        Raises:
            RankError: they could not; none is left then.
            KeyboardInterrupt: an interrupt came; none is left then.
        """
        self.stop()
        self._board = Blackboard.create(self.world_size)
        self._ranks = processes.start_ranks(self.world_size, self.method)
        self._join(gate, fresh=True)

    def _join(self, gate: InterruptGate, fresh: bool) -> None:
        """Let all ranks join a new group; see `_start`."""
        assert self._board is not None
        with placement.store_file() as store_file:
            jobs = {}
            for rank in range(self.world_size):
                place = membership(
                    rank,
                    self.world_size,
                    timeout_s=24 * 3600.0,  # the parent ends a cell that takes too long
                    seed=self.seed,
                    device=self.device,
                    board=self._board.path,
                    store_file=store_file,
                    fresh=fresh,
                )
                data, sources = payload.pack_call(cells.prepare, ())
                jobs[rank] = Job(place, call=data if fresh else None, sources=sources)
            supervisor = self._supervisor(jobs, gate, _JOIN_S)
            supervisor.run()
            supervisor.drain()
        if all(rank.packed_result is not None for rank in supervisor.ranks):
            return
        outcome = launching.outcome_of(supervisor, _JOIN_S, 0.0, {})
        self.stop()
        _raise_failure(outcome, "")

    def _make_usable(self, supervisor: Supervisor) -> str:
        """After a failure: give the ranks a new group, or start them again; say which."""
        alive = all(rank.exit_code() is None for rank in self._ranks)
        if alive and all(rank.reported for rank in supervisor.ranks):
            with held_interrupts() as gate, contextlib.suppress(RankError):
                self._join(gate, fresh=False)
                return KEPT
        self.stop()
        return RESTARTED


def _raise_failure(outcome: Outcome, note: str) -> None:
    """Raise what a failed outcome calls for, with a note on the state of the ranks."""
    if outcome.interrupted:
        print(f"interrupted; {note}" if note else "interrupted: no rank is left")
        raise KeyboardInterrupt
    error = outcome.error()
    if error is None:
        return
    raise error.with_note(note) if note else error
