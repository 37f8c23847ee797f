"""Joining, leaving and breaking off a group of ranks: a rank's side."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import socket
import sys
from collections.abc import Callable
from typing import Any

from course_lib.ranks import runtime, watch
from course_lib.ranks.blackboard import Blackboard
from course_lib.ranks.channel import listen_on_loopback
from course_lib.ranks.jobs import Membership

MEET_S = 30.0  # for the ranks to find each other: a wrong network must not cost half an hour


def take_over(member: Membership) -> None:
    """Take over the parent's environment, folder and import path; set threads and seeds."""
    os.environ.clear()
    os.environ.update(member.environment)
    with contextlib.suppress(OSError):
        os.chdir(member.folder)
    sys.path[:] = member.path
    sys.argv[:] = member.argv
    runtime.configure(None, None)
    runtime.configure(runtime.backend_choice(member.device), None)
    runtime.set_threads()
    random.seed()
    runtime.set_seed(member.seed)


def join(
    member: Membership, name_port: Callable[[int], None], wait_for_port: Callable[[], int]
) -> None:
    """Initialise torch.distributed and start to write operations down.

    Args:
        member: which place in which group.
        name_port: rank 0 calls it with the port of its store.
        wait_for_port: the others call it to learn that port.
    """
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=min(MEET_S, member.timeout_s))
    store: Any
    if member.store_file:
        store = dist.FileStore(member.store_file, runtime.world_size())
    elif runtime.rank() == 0:
        store = _hold_store(limit, name_port)
    else:
        port = wait_for_port()
        os.environ["MASTER_PORT"] = str(port)
        store = dist.TCPStore(
            "127.0.0.1", port, runtime.world_size(), False, limit, wait_for_workers=False
        )
    # The parent ends a job that takes too long; the group's own limit is only a second net.
    runtime.start_group(timeout_s=member.timeout_s + 30.0, store=store)
    board = None
    with contextlib.suppress(OSError, ValueError):
        board = Blackboard.open(member.board)
    watch.install(board, runtime.rank())


def _hold_store(limit: datetime.timedelta, name_port: Callable[[int], None]) -> Any:
    """Open the TCP store on a loopback socket that is bound before anyone hears of it."""
    import torch.distributed as dist

    listener = listen_on_loopback()
    port = listener.getsockname()[1]
    os.environ["MASTER_PORT"] = str(port)
    store = dist.TCPStore(
        "127.0.0.1",
        port,
        runtime.world_size(),
        True,
        limit,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    name_port(port)
    return store


def leave() -> None:
    """Destroy the process group; an abort at exit would look like a failure."""
    import torch.distributed as dist

    with contextlib.suppress(Exception):
        if dist.is_initialized():
            dist.destroy_process_group()


def break_connections() -> None:
    """Shut this rank's loopback connections, so that operations that wait end with an error.

    A wait in gloo's compiled code hears no signal; it does notice that its peer has gone.
    """
    for folder in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                _shut_if_connection(int(name))
            return


def _shut_if_connection(descriptor: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        copy = socket.socket(fileno=os.dup(descriptor))
        try:
            is_tcp = copy.family in (socket.AF_INET, socket.AF_INET6)
            if is_tcp and _is_loopback(copy.getpeername()[0]):
                copy.shutdown(socket.SHUT_RDWR)
        finally:
            copy.close()


def _is_loopback(address: str) -> bool:
    return address.removeprefix("::ffff:").startswith("127.") or address == "::1"
