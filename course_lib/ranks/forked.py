"""Forked ranks (Linux): the parent's handles on the zygote and on each rank that it forked."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from typing import IO

from course_lib.ranks.channel import Channel
from course_lib.ranks.environment import rank_environment

OUTPUT_BYTES = 1 << 20  # read at once


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

    def read_output(self) -> bytes:
        """See RankProcess."""
        return os.read(self.output, OUTPUT_BYTES)

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
        environment = {**rank_environment(), "OPENBLAS_NUM_THREADS": "1"}
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


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            os.close(descriptor)
