"""Who waits for whom: what can never go on is told, what still may is left alone."""

import pytest

from course_lib.ranks.operations import channel_key
from course_lib.ranks.waits import find_mismatch, find_stuck


def note(blocked=None, **started):
    """A rank's note: `started` gives calls made, by key; `blocked` the key it waits on."""
    history = {
        key: [[n + 1, *call] for n, call in enumerate(calls)] for key, calls in started.items()
    }
    counts = {key: len(calls) for key, calls in started.items()}
    waits = None
    if blocked is not None:
        name, what = started[blocked][-1]
        ends = blocked.split(" ")[1] if blocked.startswith(("send", "recv")) else ""
        peer = ends.split(">")[blocked.startswith("send")] if ends else "*"
        waits = {
            "name": name,
            "what": what,
            "peer": None if peer == "*" else int(peer),
            "key": blocked,
            "number": counts[blocked],
            "members": None,
        }
    return {"started": counts, "history": history, "blocked": waits}


def send(rank: int, peer: int, times: int = 1, what: str = "float32[10]", wait: bool = True):
    key = channel_key("send", rank, peer)
    return note(key if wait else None, **{key: [("send", what)] * times})


def recv(rank: int, peer: int | None, times: int = 1, what: str = "float32[10]"):
    key = channel_key("recv", rank, peer)
    return note(key, **{key: [("recv", what)] * times})


def collective(*calls: tuple[str, str], wait: bool = True):
    return note("group " if wait else None, **{"group ": list(calls)})


COMPUTING = note()
ALL_REDUCE = ("all_reduce", "float32[4]")


@pytest.mark.parametrize(
    ("notes", "finished", "expected"),
    [
        # Everyone sends first, or everyone receives first.
        ([send(0, 1), send(1, 0)], set(), [0, 1]),
        ([recv(0, 1), recv(1, 0)], set(), [0, 1]),
        ([recv(0, 1), recv(1, 2), recv(2, 0)], set(), [0, 1, 2]),
        # A pair that meets, and one whose second message doesn't.
        ([send(0, 1), recv(1, 0)], set(), []),
        ([send(0, 1, times=2), recv(1, 0, times=2)], set(), []),
        ([send(0, 1, wait=False), recv(1, 0, times=2)], {0}, [1]),
        # A rank that computes may still come.
        ([recv(0, 1), COMPUTING], set(), []),
        ([recv(0, 1), recv(1, 2), COMPUTING], set(), []),
        # ... but not one that has finished, nor one that waits for such a one.
        ([recv(0, 1), COMPUTING], {1}, [0]),
        ([recv(0, 1), recv(1, 2), COMPUTING], {2}, [0, 1]),
        # From anyone: one that may come is enough.
        ([recv(0, None), COMPUTING, COMPUTING], {1}, []),
        ([recv(0, None), COMPUTING, COMPUTING], {1, 2}, [0]),
        ([recv(0, None), send(1, 0), COMPUTING], {2}, []),
        # Collectives: all there; one missing that computes; one that has finished.
        ([collective(ALL_REDUCE), collective(ALL_REDUCE)], set(), []),
        ([collective(ALL_REDUCE), COMPUTING], set(), []),
        ([collective(ALL_REDUCE), COMPUTING], {1}, [0]),
        ([collective(ALL_REDUCE, ALL_REDUCE), collective(ALL_REDUCE, wait=False)], {1}, [0]),
        # Two different calls as the same number never meet, nor do two sizes or dtypes.
        ([collective(ALL_REDUCE), collective(("barrier", ""))], set(), [0, 1]),
        ([collective(ALL_REDUCE), collective(("all_reduce", "float32[5]"))], set(), [0, 1]),
        ([collective(ALL_REDUCE), collective(("all_reduce", "float64[4]"))], set(), [0, 1]),
        ([collective(ALL_REDUCE), collective(("all_reduce", "float32[2, 2]"))], set(), []),
        # One in a collective, the other in a receive from it.
        ([collective(ALL_REDUCE), recv(1, 0)], set(), [0, 1]),
        # Before the first note.
        ([None, recv(1, 0)], set(), []),
    ],
)
def test_exactly_those_that_can_never_go_on_are_told(notes, finished, expected) -> None:
    assert [one.rank for one in find_stuck(notes, finished)] == expected


def test_the_reason_names_the_other_rank_and_what_it_does() -> None:
    first, second = find_stuck([send(0, 1), send(1, 0)], set())
    assert first.operation == "send to rank 1 (float32[10])"
    assert first.reason == "rank 1 waits in send to rank 0 (float32[10])"
    assert second.reason == "rank 0 waits in send to rank 1 (float32[10])"
    (alone,) = find_stuck([collective(ALL_REDUCE), COMPUTING], {1})
    assert alone.operation == "all_reduce number 1 (float32[4])"
    assert alone.reason == "rank 1 has finished"


def test_calls_that_met_but_don_t_fit_are_found_after_a_crash() -> None:
    fits = [send(0, 1), recv(1, 0)]
    assert find_mismatch(fits) is None
    assert find_mismatch([send(0, 1), recv(1, 0, what="float32[5]")]) == (
        "rank 0 called send (float32[10]), rank 1 called recv (float32[5])"
    )
    assert find_mismatch([collective(ALL_REDUCE), collective(("barrier", ""))]) == (
        "rank 0 called all_reduce (float32[4]), rank 1 called barrier"
    )
    assert find_mismatch([None, collective(ALL_REDUCE)]) is None
