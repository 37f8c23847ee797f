"""trace: counts are what was called, spans keep their order, the timeline is a valid trace file."""

import json
import time

import pytest
import torch
import torch.distributed as dist

from course_lib import trace
from course_lib.ranks import launch
from course_lib.trace import COMMUNICATION, Span, Trace


def test_nothing_is_kept_while_nobody_records() -> None:
    with trace.span("forward"):
        assert not trace.is_recording()
    with trace.record() as recorded:
        pass
    assert recorded.spans == []


def test_nested_recordings_each_get_their_own_spans() -> None:
    with trace.record() as outer:
        with trace.span("forward"):
            pass
        with trace.record() as inner, trace.span("loss"):
            pass
    assert [one.name for one in outer.spans] == ["forward", "loss"]
    assert [one.name for one in inner.spans] == ["loss"]


def test_a_stage_that_raises_is_recorded_too() -> None:
    with trace.record() as recorded, pytest.raises(RuntimeError), trace.span("backward"):
        raise RuntimeError
    assert [one.name for one in recorded.spans] == ["backward"]


def test_a_span_lasts_as_long_as_its_block() -> None:
    with trace.record() as recorded:
        before_s = time.monotonic()
        with trace.span("update"):
            time.sleep(0.01)
        after_s = time.monotonic()
    (one,) = recorded.spans
    assert one.time_s >= 0.01
    assert before_s <= one.start_s <= one.end_s <= after_s


def test_messages_and_bytes_are_counted_per_rank_and_operation() -> None:
    def work() -> Trace:
        rank = dist.get_rank()
        with trace.record() as recorded:
            dist.all_reduce(torch.ones(5))
            dist.all_reduce(torch.ones(5, dtype=torch.float64))
            dist.broadcast(torch.ones(3, 2), 0)
            if rank == 0:
                dist.send(torch.ones(7), 1)
                dist.isend(torch.ones(2), 1).wait()
            else:
                dist.recv(torch.ones(7), 0)
                dist.irecv(torch.ones(2), 0).wait()
            dist.all_reduce(torch.ones(1), async_op=True).wait()
            dist.barrier()
        return recorded

    zero, one = launch(work, world_size=2)
    for recorded in (zero, one):
        counts = recorded.counts()
        assert counts["all_reduce"][:2] == (3, 5 * 4 + 5 * 8 + 4)
        assert counts["broadcast"][:2] == (1, 24)
        assert counts["barrier"][:2] == (1, 0)
    assert (zero.sent_messages(), zero.sent_bytes()) == (2, 28 + 8)
    assert (one.sent_messages(), one.sent_bytes()) == (0, 0)
    assert one.counts()["recv"][:2] == (1, 28)
    assert {span.rank for span in one.spans} == {1}


def test_spans_of_all_ranks_lie_on_one_clock() -> None:
    def work() -> Trace:
        with trace.record() as recorded, trace.span("step"):
            dist.barrier()
            with trace.span("together"):
                time.sleep(0.05)
            dist.barrier()
        return recorded

    traces = launch(work, world_size=3)
    together = [span for one in traces for span in one.spans if span.name == "together"]
    assert max(one.start_s for one in together) < min(one.end_s for one in together)


def test_the_timeline_is_a_chrome_trace(tmp_path) -> None:
    spans = [
        Span("forward", 0, 10.0, 2.0),
        Span("matmul", 0, 10.5, 1.0),
        Span("all_reduce", 0, 11.0, 2.0, COMMUNICATION, 400),
        Span("send", 0, 12.0, 2.0, COMMUNICATION, 8, peer=1),
        Span("forward", 1, 10.25, 1.0),
    ]
    path = trace.save_chrome_trace([Trace(spans)], tmp_path / "timeline.json")
    events = json.loads(path.read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    first = next(event for event in complete if event["name"] == "forward" and event["pid"] == 0)
    assert (first["ts"], first["dur"]) == (0.0, 2e6)
    send = next(event for event in complete if event["name"] == "send")
    assert send["args"] == {"size_bytes": 8, "peer": 1}
    assert {event["pid"] for event in complete} == {0, 1}
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}


def test_events_of_one_track_nest_or_follow_but_never_cross() -> None:
    spans = [
        Span("a", 0, 0.0, 4.0, COMMUNICATION),
        Span("b", 0, 1.0, 5.0, COMMUNICATION),  # crosses a
        Span("c", 0, 1.5, 1.0, COMMUNICATION),  # inside a and b
        Span("d", 0, 4.0, 1.0, COMMUNICATION),  # after a
    ]
    events = [event for event in trace.chrome_trace([Trace(spans)])["traceEvents"] if "ts" in event]
    for one in events:
        for other in events:
            if one["tid"] != other["tid"] or one is other or one["ts"] > other["ts"]:
                continue
            end, other_end = one["ts"] + one["dur"], other["ts"] + other["dur"]
            assert other["ts"] >= end or other_end <= end
    assert len({event["tid"] for event in events}) == 2


def test_stage_times_add_up_by_name() -> None:
    recorded = Trace([Span("forward", 0, 0.0, 1.0), Span("loss", 0, 1.0, 0.5)] * 2)
    assert recorded.stage_times_s() == {"forward": 2.0, "loss": 1.0}
