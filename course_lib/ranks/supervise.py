"""Watching a job on a set of ranks from start to end, in one loop that never blocks on one rank.

The loop reads frames and output of all ranks, notices deaths, interrupts and the time limit, and
stops as soon as it is known how the job ends. It never raises for what ranks did.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_lib.ranks.blackboard import Blackboard
from course_lib.ranks.channel import ChannelClosedError
from course_lib.ranks.interrupts import InterruptGate
from course_lib.ranks.jobs import Job
from course_lib.ranks.output import RankOutput
from course_lib.ranks.processes import RankProcess
from course_lib.ranks.waits import Stuck, find_mismatch, find_stuck

GRACE_S = 1.5  # after the first failure: time for the others to say what they saw
CLOSE_S = 5.0  # for the group to be destroyed after the last result
WHERE_S = 0.5  # for a stuck rank to say where it is
BREAK_S = 2.0  # for a rank that is broken off to come out of the learner's code
LOOK_S = 0.4  # between two looks at the blackboard; stuck in three looks in a row is stuck
LOOKS = 3


@dataclass
class RankOutcome:
    """How one rank's part of a job ended.

    Attributes:
        rank: its number.
        packed_result: the pickled result, None if there is none.
        error: the exception as plain data (see worker.describe_error), None if there is none.
        exit_code: the exit status of a rank that died without a word; minus the signal's number.
        ended_at_s: when the report came, on the monotonic clock; None if it was stopped.
        time_s: seconds that the function took.
        where: the frames it was in when it was stopped, outermost first.
        output: what it printed.
        ready: whether it joined its group.
        closed: whether it also left the group in good order.
        broken_off: whether it was told to stop.
    """

    rank: int
    packed_result: tuple[bytes, list[Any]] | None = None
    error: dict[str, Any] | None = None
    exit_code: int | None = None
    ended_at_s: float | None = None
    time_s: float | None = None
    where: list[dict[str, Any]] = field(default_factory=list)
    output: RankOutput = field(default_factory=RankOutput)
    ready: bool = False
    closed: bool = False
    broken_off: bool = False

    @property
    def reported(self) -> bool:
        """Whether the rank has ended its part, well or not."""
        return self.ended_at_s is not None

    @property
    def failed(self) -> bool:
        """Whether it raised or died by itself."""
        return self.reported and self.packed_result is None and not self.broken_off


class Supervisor:
    """Runs one job on ranks that are already started.

    Args:
        processes: the processes of all ranks, in rank order.
        jobs: a job for each rank that takes part, by rank.
        board: the ranks' blackboard.
        gate: where interrupts are noted.
        timeout_s: the time limit in seconds.
        show: called with (rank, line) for output to print at once; None to print nothing.
        on_event: called with (rank, event) for each `runtime.emit`.
        keep: whether the ranks are to live on: those that can't end their part are broken off.
    """

    def __init__(
        self,
        processes: Sequence[RankProcess],
        jobs: Mapping[int, Job],
        board: Blackboard,
        gate: InterruptGate,
        timeout_s: float,
        show: Callable[[int, str], None] | None = None,
        on_event: Callable[[int, Any], None] | None = None,
        keep: bool = False,
    ) -> None:
        self.processes = processes
        self.ranks = [RankOutcome(rank) for rank in sorted(jobs)]
        self.stuck: list[Stuck] = []
        self.mismatch: str | None = None
        self.timed_out = False
        self.interrupted = False
        self._jobs = jobs
        self._gate = gate
        self._deadline_s = time.monotonic() + timeout_s
        self._first_failure_s: float | None = None
        self._on_event = on_event
        self._board = board
        self._keep = keep
        self._next_look_s = time.monotonic() + LOOK_S
        self._looks: list[list[Stuck]] = []
        self._selector = selectors.DefaultSelector()
        self._of = {rank.rank: rank for rank in self.ranks}
        if show is not None:
            first = self.ranks[0]
            first.output = RankOutput(lambda line: show(first.rank, line))

    def run(self) -> None:
        """Run the job to its end; afterwards `ranks` say how each one ended."""
        try:
            self._selector.register(self._gate.wake, selectors.EVENT_READ, None)
            for rank in self._of:
                process = self.processes[rank]
                self._selector.register(process.channel.sock, selectors.EVENT_READ, rank)
                self._selector.register(process.output, selectors.EVENT_READ, rank)
            for rank, job in self._jobs.items():
                self._send(rank, ("job", job))
            self._watch(self._should_stop)
            if all(rank.packed_result is not None for rank in self.ranks):
                self._close_group()
                return
            self.mismatch = find_mismatch(self._notes())
            if not self.interrupted:
                self._ask_where()
            if self._keep:
                self._break_off()
            self._note_deaths()
        finally:
            self._selector.close()

    def drain(self) -> None:
        """Take in what is still in the output pipes, once the ranks have ended their part."""
        for rank in self._of:
            self._read_output(rank)

    def _watch(self, done: Callable[[], bool], until_s: float = float("inf")) -> None:
        """Handle what comes until `done()` or the given moment."""
        while not done():
            now_s = time.monotonic()
            if now_s >= until_s:
                return
            for key, _ in self._selector.select(min(until_s - now_s, self._nap_s(now_s))):
                if key.data is None:
                    self._gate.wake.recv(64)
                elif key.fileobj == self.processes[key.data].output:
                    self._read_output(key.data, turns=1)
                else:
                    self._read_channel(key.data)

    def _nap_s(self, now_s: float) -> float:
        """Return how long to wait for news at the most."""
        moments = [self._deadline_s, now_s + 0.2]
        if self._first_failure_s is not None:
            moments.append(self._first_failure_s + GRACE_S)
        return max(0.0, min(moments) - now_s)

    def _should_stop(self) -> bool:
        now_s = time.monotonic()
        self.interrupted = self._gate.interrupted
        reported = all(rank.reported for rank in self.ranks)
        self.timed_out = now_s >= self._deadline_s and not reported
        failure_s = self._first_failure_s
        grace_over = failure_s is not None and now_s >= failure_s + GRACE_S
        self._look_at_waits(now_s)
        over = self.timed_out or self.interrupted or grace_over
        return reported or over or bool(self.stuck)

    def _notes(self) -> list[dict[str, Any] | None]:
        return [self._board.read(rank) for rank in range(len(self.processes))]

    def _look_at_waits(self, now_s: float) -> None:
        """Find ranks that can never go on: stuck at the same place in several looks in a row."""
        if now_s < self._next_look_s or self._first_failure_s is not None:
            return
        self._next_look_s = now_s + LOOK_S
        absent = set(range(len(self.processes))) - set(self._of)
        finished = absent | {rank.rank for rank in self.ranks if rank.reported}
        stuck = find_stuck(self._notes(), finished)
        self._looks = [*self._looks[1 - LOOKS :], stuck]
        if stuck and len(self._looks) == LOOKS and all(look == stuck for look in self._looks):
            self.stuck = stuck

    def _break_off(self) -> None:
        """Get ranks that live on out of code that they can't end."""
        late = [rank for rank in self.ranks if not rank.reported]
        for rank in late:
            rank.broken_off = True
            self._send(rank.rank, ("break", None))
        self._watch(lambda: all(rank.reported for rank in late), time.monotonic() + BREAK_S)

    def _close_group(self) -> None:
        """Let all ranks leave the group together: none goes while another still needs it."""
        if not all(job.leave for job in self._jobs.values()):
            return
        for rank in self._of:
            self._send(rank, ("close", None))
        self._watch(
            lambda: (
                self._gate.interrupted
                or all(
                    rank.closed or self.processes[rank.rank].channel.closed for rank in self.ranks
                )
            ),
            time.monotonic() + CLOSE_S,
        )

    def _ask_where(self) -> None:
        """Ask ranks that have not ended which line they are in."""
        stuck = [rank for rank in self.ranks if not rank.reported]
        for rank in stuck:
            self._send(rank.rank, ("where", None))
        self._watch(
            lambda: self._gate.interrupted or all(rank.where or rank.reported for rank in stuck),
            time.monotonic() + WHERE_S,
        )

    def _note_deaths(self) -> None:
        """Learn how ranks died that said nothing; the status comes just after the channel ends."""
        silent = [
            rank
            for rank in self.ranks
            if rank.failed and rank.error is None and rank.exit_code is None
        ]
        end_s = time.monotonic() + 1.0
        while silent and time.monotonic() < end_s:
            for rank in silent:
                rank.exit_code = self.processes[rank.rank].exit_code()
            silent = [rank for rank in silent if rank.exit_code is None]
            time.sleep(0.002)

    def _read_channel(self, rank: int) -> None:
        channel = self.processes[rank].channel
        for kind, content in channel.receive_ready():
            self._take(self._of[rank], kind, content)
        if channel.closed:
            self._selector.unregister(channel.sock)
            if not self._of[rank].reported:
                self._report(self._of[rank], time.monotonic())

    def _take(self, rank: RankOutcome, kind: str, content: Any) -> None:
        """Handle one frame of a rank."""
        if kind == "store":
            for other in self._of:
                if other != rank.rank:
                    self._send(other, ("store", content))
        elif kind == "ready":
            rank.ready = True
            if all(other.ready for other in self.ranks):
                for number in self._of:
                    self._send(number, ("go", None))
        elif kind == "event":
            if self._on_event is not None:
                self._on_event(rank.rank, content)
        elif kind == "result":
            rank.packed_result, rank.time_s = content
            self._report(rank, time.monotonic())
        elif kind == "error":
            rank.error = content
            self._report(rank, content["time_s"])
        elif kind == "where":
            rank.where = content
        elif kind == "closed":
            rank.closed = True

    def _report(self, rank: RankOutcome, at_s: float) -> None:
        rank.ended_at_s = at_s
        if rank.failed and self._first_failure_s is None:
            self._first_failure_s = time.monotonic()

    def _read_output(self, rank: int, turns: int = 1000) -> None:
        process = self.processes[rank]
        for _ in range(turns):
            try:
                data = process.read_output()
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(process.output)
                return
            self._of[rank].output.feed(data)

    def _send(self, rank: int, frame: tuple[str, Any]) -> None:
        with contextlib.suppress(ChannelClosedError, TimeoutError):
            self.processes[rank].channel.send(frame, timeout_s=10.0)
