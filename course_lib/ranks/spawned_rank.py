"""Spawned ranks (macOS, Windows): the parent's handle on a rank in a fresh interpreter."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

from course_lib.ranks.channel import Channel
from course_lib.ranks.environment import rank_environment
from course_lib.ranks.forked import OUTPUT_BYTES

RELAYS_OUTPUT = sys.platform == "win32"  # a pipe can't be waited for there


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
            env=rank_environment(),
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
        self.output: int | socket.socket
        if RELAYS_OUTPUT:
            self.output, inward = socket.socketpair()
            self.output.setblocking(False)
            arguments = (self.process.stdout.fileno(), inward)
            threading.Thread(target=_relay, args=arguments, daemon=True).start()
        else:
            descriptor = self.process.stdout.fileno()
            os.set_blocking(descriptor, False)
            self.output = descriptor

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def exit_code(self) -> int | None:
        """See RankProcess."""
        return self.process.poll()

    def read_output(self) -> bytes:
        """See RankProcess."""
        if isinstance(self.output, socket.socket):
            return self.output.recv(OUTPUT_BYTES)
        return os.read(self.output, OUTPUT_BYTES)

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
        if isinstance(self.output, socket.socket):
            self.output.close()
        self.output = -1


def _relay(pipe: int, outward: socket.socket) -> None:
    """Pass on what comes from a pipe to a socket, which can be waited for on every system."""
    with outward, contextlib.suppress(OSError):
        while data := os.read(pipe, OUTPUT_BYTES):
            outward.sendall(data)
