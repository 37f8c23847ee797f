"""Starting and ending ranks: forked from the zygote on Linux, spawned elsewhere.

Either way the parent holds a `RankProcess`: a channel, the output's pipe, and a way to learn how
the process ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any, Protocol

from course_lib.ranks.channel import Channel

_LOCK = threading.RLock()


class RankProcess(Protocol):
    """What the parent needs of a rank's process."""

    channel: Channel
    output: int

    def exit_code(self) -> int | None:
        """Return None while it lives, its exit status, or minus the signal that ended it."""

    def kill(self) -> None:
        """End it and what it started, at once."""

    def release(self) -> None:
        """Close the parent's descriptors."""


class ForkedRank:
    """A rank that the zygote forked; its status pipe brings the process id, then the exit code."""

    def __init__(self, channel: Channel, output: int, status: int) -> None:
        self.channel = channel
        self.output = output
        self._status = status
        self._text = b""

    @property
    def pid(self) -> int | None:
        """The process id, None until the fork was reported."""
        self._read()
        lines = self._text.split(b"\n")
        return int(lines[0]) if len(lines) > 1 else None

    def exit_code(self) -> int | None:
        """See RankProcess."""
        self._read()
        lines = self._text.split(b"\n")
        return int(lines[1]) if len(lines) > 2 else None

    def kill(self) -> None:
        """See RankProcess."""
        pid = self.pid
        if pid is not None and self.exit_code() is None:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def release(self) -> None:
        """See RankProcess."""
        self.channel.close()
        _close(self.output)
        _close(self._status)
        self.output = self._status = -1

    def _read(self) -> None:
        if self._status < 0:
            return
        poller = select.poll()
        poller.register(self._status, select.POLLIN)
        while poller.poll(0):
            data = os.read(self._status, 64)
            if not data:
                if self._text.count(b"\n") < 2:  # the zygote died, and its ranks with it
                    self._text = b"0\n-9\n"
                return
            self._text += data


class Zygote:
    """The parent's handle on the process that ranks are forked from."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {**_rank_environment(), "OPENBLAS_NUM_THREADS": "1"}
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.ranks.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # the notebook interrupts its whole process group
            env=environment,
            cwd="/",
        )
        theirs.close()
        self._control = ours
        self._owner = os.getpid()

    def usable(self) -> bool:
        """Tell whether it lives and belongs to this process (a fork of the parent must not)."""
        return self._owner == os.getpid() and self.process.poll() is None

    def fork(self) -> ForkedRank:
        """Ask for one more rank; returns at once.

        Raises:
            RuntimeError: the zygote has died; its last words are in the text.
        """
        channel, their_channel = socket.socketpair()
        output, their_output = os.pipe()
        os.set_blocking(output, False)
        status, their_status = os.pipe()
        theirs = [their_channel.fileno(), their_output, their_status]
        try:
            socket.send_fds(self._control, [b"f"], theirs)
        except OSError:
            for descriptor in (output, status):
                os.close(descriptor)
            channel.close()
            raise RuntimeError(
                f"the process that starts ranks has died: {self.last_words()}"
            ) from None
        finally:
            their_channel.close()
            os.close(their_output)
            os.close(their_status)
        return ForkedRank(Channel(channel), output, status)

    def last_words(self) -> str:
        """Return the end of what the zygote wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip() or "it said nothing"

    def stop(self) -> None:
        """End it and all its ranks; waits until it has gone."""
        self._control.close()
        if self._owner != os.getpid():
            return
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()


class SpawnedRank:
    """A rank in a fresh interpreter: macOS and Windows, where forking is not safe or not there."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        shared = {} if sys.platform == "win32" else {"pass_fds": [theirs.fileno()]}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.ranks.spawned", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_rank_environment(),
            start_new_session=sys.platform != "win32",
            **shared,  # type: ignore[call-overload]
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if sys.platform == "win32":
            self.process.stdin.write(theirs.share(self.process.pid))
            self.process.stdin.flush()
        theirs.close()
        self.channel = Channel(ours)
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def exit_code(self) -> int | None:
        """See RankProcess."""
        return self.process.poll()

    def kill(self) -> None:
        """See RankProcess."""
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self.process.kill()

    def release(self) -> None:
        """See RankProcess."""
        self.channel.close()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.output = -1


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
    end_s = time.monotonic() + 3.0
    while any(rank.exit_code() is None for rank in ranks) and time.monotonic() < end_s:
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


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _rank_environment() -> dict[str, str]:
    """Return the environment that a rank's process is born with (libraries read it at import)."""
    path = [_package_root(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # when a rank dies, torch warns with pages of C++ frames
        **os.environ,
        "OMP_WAIT_POLICY": "PASSIVE",  # threads of ranks that wait must not spin on the cores
        "PYTHONPATH": os.pathsep.join(path),
    }


def _package_root() -> str:
    module = importlib.import_module("course_lib")
    return os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or ".")))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
