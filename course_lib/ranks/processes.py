"""Starting and ending ranks: forked from the zygote on Linux, spawned elsewhere.

Either way the parent holds a `RankProcess`: a channel, the output's pipe, and a way to learn how
the process ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from typing import Any, Protocol

from course_lib.ranks.channel import Channel
from course_lib.ranks.forked import Zygote
from course_lib.ranks.spawned_rank import SpawnedRank

KILL_S = 3.0  # for killed ranks to be gone
UNBORN_S = 0.5  # for ranks that are just being started to have a process id
_LOCK = threading.RLock()


class RankProcess(Protocol):
    """What the parent needs of a rank's process."""

    channel: Channel
    pid: Any  # the process id; None before the process is there
    output: int | socket.socket  # becomes readable when the rank has printed

    def read_output(self) -> bytes:
        """Return what the rank has printed; b"" at its end.

        Raises:
            BlockingIOError: nothing new has come.
        """

    def exit_code(self) -> int | None:
        """Return None while it lives, its exit status, or minus the signal that ended it."""

    def kill(self) -> None:
        """End it and what it started, at once."""

    def release(self) -> None:
        """Close the parent's descriptors."""


_zygote: Zygote | None = None
_idle_spawned: list[SpawnedRank] = []


def warm_up() -> None:
    """Start loading torch for the ranks now and return at once: the first launch waits less."""
    if sys.platform.startswith("linux"):
        _get_zygote()


def _get_zygote() -> Zygote:
    global _zygote
    with _LOCK:
        if _zygote is None or not _zygote.usable():
            if _zygote is not None:
                _zygote.stop()
            _zygote = Zygote()
        return _zygote


def start_ranks(count: int, method: str) -> list[Any]:
    """Start `count` ranks ("fork" or "spawn"); spawned ones that are idle are used again."""
    ranks: list[Any] = []
    try:
        for _ in range(count):
            ranks.append(_get_zygote().fork() if method == "fork" else _take_spawned())
    except BaseException:
        end_ranks(ranks)
        raise
    return ranks


def _take_spawned() -> SpawnedRank:
    while _idle_spawned:
        rank = _idle_spawned.pop()
        if rank.exit_code() is None:
            return rank
        rank.release()
    return SpawnedRank()


def keep_warm(ranks: list[SpawnedRank]) -> None:
    """Keep spawned ranks that ended their job well for the next launch."""
    _idle_spawned.extend(ranks)


def wait_or_kill(ranks: list[Any], patience_s: float = 0.0) -> None:
    """Wait up to `patience_s` for ranks to end by themselves, then kill; return when none lives."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s and any(rank.exit_code() is None for rank in ranks):
        time.sleep(0.001)
    start_s = time.monotonic()
    while (waited_s := time.monotonic() - start_s) < KILL_S:
        # A rank without a process id was only asked for: released, it will not be started.
        patience = KILL_S if any(rank.pid is not None for rank in ranks) else UNBORN_S
        if waited_s >= patience or all(rank.exit_code() is not None for rank in ranks):
            return
        for rank in ranks:
            rank.kill()
        time.sleep(0.002)


def release(ranks: list[Any]) -> None:
    """Close the parent's descriptors of ranks that have ended."""
    for rank in ranks:
        rank.release()


def end_ranks(ranks: list[Any]) -> None:
    """Kill ranks and release them."""
    wait_or_kill(ranks)
    release(ranks)


def stop_everything() -> None:
    """End the zygote and every idle rank (also done when the parent exits)."""
    global _zygote
    with _LOCK:
        end_ranks(list(_idle_spawned))
        _idle_spawned.clear()
        if _zygote is not None:
            _zygote.stop()
            _zygote = None


def _forget_after_fork() -> None:
    """In a fork of the parent: let go of the zygote, or it would outlive the parent."""
    global _zygote
    if _zygote is not None:
        with contextlib.suppress(OSError):
            _zygote._control.close()
        _zygote = None
    _idle_spawned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
