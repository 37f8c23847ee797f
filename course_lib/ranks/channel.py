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
_READ_BYTES = 1 << 20
_READS_PER_TURN = 64  # then other ranks have their turn


class ChannelClosedError(Exception):
    """The other side has gone."""


class Channel:
    """One end of a two-way connection that carries picklable frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False
        self._buffer = bytearray()

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
            self.sock.sendall(_HEADER.pack(len(payload)) + payload)
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
            frame = self._next_frame()
            if frame is not None:
                return frame[0]
            self._fill()
            if self.closed:
                raise ChannelClosedError

    def receive_ready(self) -> Iterator[Any]:
        """Yield the frames that are complete by now, without blocking; sets `closed` at the end."""
        for _ in range(_READS_PER_TURN):
            if self.closed or not select_readable(self.sock):
                return
            self._fill()
            while (frame := self._next_frame()) is not None:
                yield frame[0]

    def close(self) -> None:
        """Close this end; harmless when closed before."""
        self.closed = True
        self.sock.close()

    def _fill(self) -> None:
        try:
            data = self.sock.recv(_READ_BYTES)
        except OSError:
            data = b""
        if data:
            self._buffer += data
        else:
            self.closed = True

    def _next_frame(self) -> tuple[Any] | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (size,) = _HEADER.unpack_from(self._buffer)
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            frame = pickle.loads(view[_HEADER.size : end])
        del self._buffer[:end]
        return (frame,)


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
