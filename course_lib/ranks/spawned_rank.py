"""Spawned ranks (macOS, Windows): the parent's handle on a rank in a fresh interpreter."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys

from course_lib.ranks.channel import Channel
from course_lib.ranks.environment import rank_environment


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
