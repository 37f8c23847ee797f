"""Frames over a socket: how the parent and a rank talk to each other.

A frame is the number of its parts, their sizes (eight bytes each, big endian), a pickle, and the
buffers that it refers to: a tensor's bytes are not copied into the pickle. The parent reads without
ever blocking, so that a rank that stops in the middle of a frame can't hang the notebook.
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
        buffers: list[pickle.PickleBuffer] = []
        payload = pickle.dumps(frame, protocol=5, buffer_callback=buffers.append)
        parts: list[Any] = [payload, *(buffer.raw() for buffer in buffers)]
        sizes = [len(part) for part in parts]
        header = _HEADER.pack(len(parts)) + b"".join(_HEADER.pack(size) for size in sizes)
        self.sock.settimeout(timeout_s)
        try:
            for part in (header, *parts):
                self.sock.sendall(part)
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
        self._awaits = "count"  # then "sizes", then "part" for each of them
        self._sizes: list[int] = []
        self._parts: list[bytearray] = []
        self._begin_part(_HEADER.size)

    def _begin_part(self, size: int) -> None:
        self._room = bytearray(size)
        self._filled = 0

    def _fill(self) -> tuple[Any] | None:
        """Read once into the room of the present part; return the frame in a tuple if complete."""
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
        return self._end_part()

    def _end_part(self) -> tuple[Any] | None:
        """Go on from a part that is complete: the count, the sizes, then part after part."""
        if self._awaits == "count":
            (count,) = _HEADER.unpack(self._room)
            self._awaits = "sizes"
            self._begin_part(count * _HEADER.size)
            return None
        if self._awaits == "sizes":
            self._sizes = [size for (size,) in _HEADER.iter_unpack(self._room)]
            self._awaits = "part"
        else:
            self._parts.append(self._room)
        while len(self._parts) < len(self._sizes):
            size = self._sizes[len(self._parts)]
            if size > 0:
                self._begin_part(size)
                return None
            self._parts.append(bytearray())
        frame, *buffers = self._parts
        self._begin_frame()
        return (pickle.loads(frame, buffers=buffers),)


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
