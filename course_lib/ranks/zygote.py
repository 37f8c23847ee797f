"""The process that ranks are forked from (Linux): torch is imported once, a rank costs a fork.

The notebook's kernel is never forked itself: a process that has run torch's threads freezes in its
first matmul after a fork. This one imports torch, starts no thread, and forks. It ends, and every
rank with it, when the kernel's end of its socket closes, however the kernel died.

A request is one byte with three descriptors: the rank's channel, the pipe for its output, and a
pipe on which this process writes the rank's process id, then its exit status.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys

PRELOAD = ("torch", "torch.distributed", "cloudpickle", "numpy", "course_lib.ranks.worker")
PRELOAD_WHEN_IDLE = ("torch._dynamo",)  # every optimizer's first step imports it: 1.4 s
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IDLE_S = 0.3


def main(control_descriptor: int) -> None:
    """Serve fork requests until the other end of `control_descriptor` closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_descriptor)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _import_all(PRELOAD)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    status_of: dict[int, int] = {}
    try:
        with contextlib.suppress(ConnectionError):
            _serve(control, (wake_read, wake_write), status_of)
    finally:
        for pid in status_of:
            _kill_session(pid)
        _kill_adopted()


def _serve(control: socket.socket, wake: tuple[int, int], status_of: dict[int, int]) -> None:
    """Fork on request and report exits; return when the kernel has gone.

    Args:
        status_of: process id of each living rank -> its status pipe; kept up to date.
    """
    wake_read = wake[0]
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    later = list(PRELOAD_WHEN_IDLE)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll(_IDLE_S * 1000 if later else None)}
        if not ready and later and not status_of:
            _import_all([later.pop(0)])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap(status_of)
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 3)
            if not message:
                return
            _fork(descriptors, (control.fileno(), *wake, *status_of.values()), status_of)


def _fork(descriptors: list[int], inherited: tuple[int, ...], status_of: dict[int, int]) -> None:
    """Fork one rank; its process id is the first line on its status pipe."""
    channel, output, status = descriptors
    if _reader_has_gone(status):  # interrupted before it began: nobody wants this rank any more
        for descriptor in descriptors:
            os.close(descriptor)
        return
    pid = os.fork()
    if pid == 0:
        _become_rank(channel, output, (*inherited, status))
    os.close(channel)
    os.close(output)
    status_of[pid] = status
    with contextlib.suppress(OSError):  # the reader may go at any moment; the rank goes with it
        os.write(status, b"%d\n" % pid)


def _reader_has_gone(pipe: int) -> bool:
    """Tell whether the other end of a pipe that we write to is closed."""
    poller = select.poll()
    poller.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def _become_rank(channel: int, output: int, inherited: tuple[int, ...]) -> None:
    """Turn a forked child into a rank; never returns."""
    code = 1
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor in inherited:
            os.close(descriptor)
        worker = importlib.import_module("course_lib.ranks.worker")
        code = worker.main(channel, output)
    finally:
        os._exit(code)


def _reap(status_of: dict[int, int]) -> None:
    """Report ended ranks; end what they left behind."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        descriptor = status_of.pop(pid, None)
        if descriptor is None:
            continue  # an orphan that this process adopted
        _kill_session(pid)
        if not status_of:
            _kill_adopted()
        with contextlib.suppress(OSError):
            os.write(descriptor, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(descriptor)


def _kill_session(pid: int) -> None:
    """Kill what is left in a rank's process group."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _kill_adopted() -> None:
    """Kill processes that ranks started and left: orphans come to the subreaper, this process."""
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
        for child in children:
            os.kill(child, signal.SIGKILL)


def _import_all(names: tuple[str, ...] | list[str]) -> None:
    """Import modules by name; one that is missing is the rank's affair, not ours."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a rank would otherwise copy every shared page


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl(2)."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
