"""Frames over a socket: how the parent and a rank talk to each other.

A frame is eight bytes of length (big endian) and a pickle. The parent reads without ever blocking,
so that a rank that stops in the middle of a frame can't hang the notebook.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
from collections.abc import Iterator
from typing import Any

_HEADER = struct.Struct("!Q")
_READS_PER_TURN = 256  # then other ranks have their turn


class ChannelClosedError(Exception):
    """The other side has gone."""


class Channel:
    """One end of a two-way connection that carries picklable frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False
        self._begin_frame()

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""
        return self.sock.fileno()

    def send(self, frame: Any, timeout_s: float | None = None) -> None:
        """Send one frame; block until it is written.

        Raises:
            ChannelClosedError: the other side has gone.
            TimeoutError: the other side did not read for `timeout_s` seconds.
        """
        payload = pickle.dumps(frame, protocol=5)
        self.sock.setblocking(True)
        self.sock.settimeout(timeout_s)
        try:
            self.sock.sendall(_HEADER.pack(len(payload)))
            self.sock.sendall(payload)  # apart: a result of 200 MB is not copied once more
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        finally:
            if not self.closed:
                self.sock.settimeout(None)

    def receive(self) -> Any:
        """Wait for one frame (a rank's side; it has nothing else to do).

        Raises:
            ChannelClosedError: the other side has gone.
        """
        while True:
            frame = self._fill()
            if frame is not None:
                return frame[0]
            if self.closed:
                raise ChannelClosedError

    def receive_ready(self) -> Iterator[Any]:
        """Yield the frames that are complete by now, without blocking; sets `closed` at the end."""
        for _ in range(_READS_PER_TURN):
            if self.closed or not select_readable(self.sock):
                return
            frame = self._fill()
            if frame is not None:
                yield frame[0]

    def close(self) -> None:
        """Close this end; harmless when closed before."""
        self.closed = True
        self.sock.close()

    def _begin_frame(self) -> None:
        self._in_header = True
        self._room = bytearray(_HEADER.size)
        self._filled = 0

    def _fill(self) -> tuple[Any] | None:
        """Read once into the room of the present frame; return the frame in a tuple if complete."""
        try:
            with memoryview(self._room) as view:
                size = self.sock.recv_into(view[self._filled :])
        except OSError:
            size = 0
        if size == 0:
            self.closed = True
            return None
        self._filled += size
        if self._filled < len(self._room):
            return None
        if self._in_header:
            self._in_header = False
            self._room = bytearray(_HEADER.unpack(self._room)[0])
            self._filled = 0
            return None
        room = self._room
        self._begin_frame()
        return (pickle.loads(room),)


def select_readable(sock: socket.socket, timeout_s: float = 0.0) -> bool:
    """Tell whether a read of `sock` would not block (poll where there is one: no limit of 1024)."""
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))
    return bool(select.select([sock], [], [], timeout_s)[0])


def listen_on_loopback() -> socket.socket:
    """Open a listening socket that only this machine can reach, on a port the system chooses."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    return sock
