"""Records what a rank does and sends, on one clock for all ranks: spans, messages, bytes.

    with record() as trace:
        with span("forward"):
            ...
        dist.all_reduce(grad)          # counted by itself inside a launch
    trace.counts()["all_reduce"]       # Count(messages=1, size_bytes=4096, time_s=...)
    save_chrome_trace(launch(fn), "timeline.json")   # opens in ui.perfetto.dev

The clock is the machine's monotonic one, so spans of all ranks of a machine can be compared. Bytes
are those of the tensor that a call was given: for send and isend exactly what goes over the link;
for a collective its payload, while what it sends depends on its algorithm.

Source of the file format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

STAGE = "stage"
COMMUNICATION = "communication"
SENDING = ("send", "isend")


@dataclass(frozen=True)
class Span:
    """Something that took time on one rank.

    Attributes:
        name: a stage's name ("forward") or an operation's ("all_reduce").
        rank: the rank it happened on.
        start_s: when it began, on the machine's monotonic clock.
        time_s: how long it took, in seconds.
        kind: "stage" or "communication".
        size_bytes: the bytes of the tensor, 0 for a stage.
        peer: the other rank of a send or receive, None otherwise.
    """

    name: str
    rank: int
    start_s: float
    time_s: float
    kind: str = STAGE
    size_bytes: int = 0
    peer: int | None = None

    @property
    def end_s(self) -> float:
        """When it ended, on the same clock."""
        return self.start_s + self.time_s


class Count(NamedTuple):
    """How often one operation was called, with how many bytes and seconds in all."""

    messages: int
    size_bytes: int
    time_s: float


@dataclass
class Trace:
    """The spans of one rank, in the order in which they ended; plain data that can be sent."""

    spans: list[Span] = field(default_factory=list)

    def counts(self) -> dict[str, Count]:
        """Add up messages, bytes and seconds for each operation, in order of first use."""
        totals: dict[str, Count] = {}
        for one in self.spans:
            if one.kind == COMMUNICATION:
                sofar = totals.get(one.name, Count(0, 0, 0.0))
                totals[one.name] = Count(
                    sofar.messages + 1,
                    sofar.size_bytes + one.size_bytes,
                    sofar.time_s + one.time_s,
                )
        return totals

    def sent_bytes(self) -> int:
        """Return the bytes that this rank sent by send and isend."""
        return sum(one.size_bytes for one in self.spans if one.name in SENDING)

    def sent_messages(self) -> int:
        """Return how many messages this rank sent by send and isend."""
        return sum(one.name in SENDING for one in self.spans)

    def stage_times_s(self) -> dict[str, float]:
        """Add up the seconds of each stage, in order of first use."""
        totals: dict[str, float] = {}
        for one in self.spans:
            if one.kind == STAGE:
                totals[one.name] = totals.get(one.name, 0.0) + one.time_s
        return totals


_recording: list[Trace] = []


def is_recording() -> bool:
    """Tell whether anybody listens, so that nothing is measured for nobody."""
    return bool(_recording)


def add(span_: Span) -> None:
    """Give a finished span to every trace that is being recorded."""
    for trace in _recording:
        trace.spans.append(span_)


@contextlib.contextmanager
def record() -> Iterator[Trace]:
    """Record this process for the block; blocks may be nested, each gets its own trace."""
    trace = Trace()
    _recording.append(trace)
    try:
        yield trace
    finally:
        # By identity: two traces without spans are equal.
        _recording[:] = [other for other in _recording if other is not trace]


@contextlib.contextmanager
def span(name: str, kind: str = STAGE, size_bytes: int = 0, peer: int | None = None) -> Iterator:
    """Measure the block as a span; costs next to nothing while nobody records."""
    if not _recording:
        yield
        return
    start_s = time.monotonic()
    try:
        yield
    finally:
        add(Span(name, _rank(), start_s, time.monotonic() - start_s, kind, size_bytes, peer))


def communication(name: str, start_s: float, size_bytes: int, peer: int | None = None) -> None:
    """Record an operation that began at `start_s` and ends now."""
    if _recording:
        time_s = time.monotonic() - start_s
        add(Span(name, _rank(), start_s, time_s, COMMUNICATION, size_bytes, peer))


def chrome_trace(traces: Iterable[Trace]) -> dict[str, Any]:
    """Return the traces of all ranks in the Chrome trace format (times in microseconds).

    A rank is a process there; its stages are one track, its communication as many as overlap.
    """
    spans = [one for trace in traces for one in trace.spans]
    origin_s = min((one.start_s for one in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for rank in sorted({one.rank for one in spans}):
        events.append(_name_event("process_name", rank, 0, f"rank {rank}"))
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        )
        first_lane = 0
        for kind in (STAGE, COMMUNICATION):
            mine = [one for one in spans if one.rank == rank and one.kind == kind]
            lanes = _lanes(mine)
            for lane in range(max(lanes, default=-1) + 1):
                events.append(_name_event("thread_name", rank, first_lane + lane, kind))
            for one, lane in zip(sorted(mine, key=_order), lanes, strict=True):
                events.append(_complete_event(one, first_lane + lane, origin_s))
            first_lane += max(lanes, default=-1) + 1
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def save_chrome_trace(traces: Iterable[Trace], path: str | Path) -> Path:
    """Write the traces to a file that ui.perfetto.dev opens; return its path."""
    path = Path(path)
    path.write_text(json.dumps(chrome_trace(traces)), encoding="utf-8")
    return path


def _order(one: Span) -> tuple[float, float]:
    return one.start_s, -one.end_s


def _lanes(spans: list[Span]) -> list[int]:
    """Choose a lane for each span, by start: spans of one lane nest or follow, never cross."""
    lanes: list[list[float]] = []  # for each lane, the ends of the spans that are open
    chosen = []
    for one in sorted(spans, key=_order):
        for number, open_ends in enumerate(lanes):
            while open_ends and open_ends[-1] <= one.start_s:
                open_ends.pop()
            if not open_ends or one.end_s <= open_ends[-1]:
                open_ends.append(one.end_s)
                chosen.append(number)
                break
        else:
            lanes.append([one.end_s])
            chosen.append(len(lanes) - 1)
    return chosen


def _name_event(name: str, rank: int, lane: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": rank, "tid": lane, "args": {"name": text}}


def _complete_event(one: Span, lane: int, origin_s: float) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if one.kind == COMMUNICATION:
        details["size_bytes"] = one.size_bytes
    if one.peer is not None:
        details["peer"] = one.peer
    return {
        "ph": "X",
        "name": one.name,
        "cat": one.kind,
        "pid": one.rank,
        "tid": lane,
        "ts": round((one.start_s - origin_s) * 1e6, 3),
        "dur": round(one.time_s * 1e6, 3),
        "args": details,
    }


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))
