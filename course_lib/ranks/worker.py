"""What runs inside a rank: take a job, set up, run the function, say how it ended, clean up.

The main thread runs the learner's code. A second thread reads the channel, so that a rank that is
stuck can still say where; it ends the process when the parent has gone.
"""

from __future__ import annotations

import contextlib
import datetime
import linecache
import os
import queue
import random
import socket
import sys
import threading
import time
import traceback
from typing import Any

from course_lib.ranks import payload, runtime
from course_lib.ranks.channel import Channel, ChannelClosedError, listen_on_loopback

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Rank:
    """One rank's side of the conversation with the parent."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._send_lock = threading.Lock()
        self._main_thread_id = threading.get_ident()
        threading.Thread(target=self._read, name="course-control", daemon=True).start()

    def send(self, kind: str, content: Any = None) -> None:
        """Send one frame (kind, content) to the parent."""
        with self._send_lock, contextlib.suppress(ChannelClosedError):
            self.channel.send((kind, content))

    def wait_for(self, kind: str) -> Any:
        """Return the content of the next frame of `kind` (frames of other kinds are stale)."""
        while True:
            got, content = self.inbox.get()
            if got == kind:
                return content

    def _read(self) -> None:
        try:
            while True:
                kind, content = self.channel.receive()
                if kind == "where":
                    self.send("where", self._where())
                else:
                    self.inbox.put((kind, content))
        except ChannelClosedError:
            os._exit(1)  # the parent has gone: nobody is left to work for

    def _where(self) -> list[dict[str, Any]]:
        """Return the frames that the main thread is in, outermost first."""
        frame = sys._current_frames().get(self._main_thread_id)
        return describe_frames(traceback.StackSummary.extract(traceback.walk_stack(frame)))[::-1]


def main(channel_descriptor: int, output_descriptor: int) -> int:
    """Serve jobs until one says that it was the last; return the exit status."""
    _redirect_output(output_descriptor)
    rank = Rank(Channel(socket.socket(fileno=channel_descriptor)))
    while True:
        job = rank.wait_for("job")
        ended_well = _run_job(rank, job)
        _flush()
        if job["last"] or not ended_well:
            return 0 if ended_well else 1


def _run_job(rank: Rank, job: dict[str, Any]) -> bool:
    """Run one call: set-up, function, result or error, clean-up; tell whether all went well."""
    try:
        _prepare(job)
        _join_group(rank, job)
        rank.send("ready")
        rank.wait_for("go")  # when all are ready: a failure must not strike others in their set-up
        fn, args = payload.loads(job["call"])
        started_s = time.monotonic()
        result = fn(*args)
        _flush()
        rank.send("result", (_pack_result(result), time.monotonic() - started_s))
    except BaseException as error:  # whatever the learner's code raises is the answer
        _flush()
        rank.send("error", describe_error(error))
        return False
    rank.wait_for("close")
    _leave_group()
    rank.send("closed")
    return True


def _prepare(job: dict[str, Any]) -> None:
    """Take over the parent's environment, folder and import path; set identity and seeds."""
    os.environ.clear()
    os.environ.update(job["environment"])
    with contextlib.suppress(OSError):
        os.chdir(job["folder"])
    sys.path[:] = job["path"]
    sys.argv[:] = job["argv"]
    payload.remember_sources(job["sources"])
    runtime.configure(None, None)
    runtime.configure(runtime.backend_choice(job["device"]), None)
    runtime.set_threads()
    random.seed()
    runtime.set_seed(job["seed"])


def _join_group(rank: Rank, job: dict[str, Any]) -> None:
    """Initialise torch.distributed; rank 0 holds the store on a loopback socket of its own."""
    import torch.distributed as dist

    wait = datetime.timedelta(seconds=min(30.0, job["timeout_s"]))
    runtime.configure(runtime.backend_choice(), lambda event: rank.send("event", event))
    store: Any
    if job["store_file"]:
        store = dist.FileStore(job["store_file"], runtime.world_size())
    else:
        store = _meet_over_tcp(rank, wait)
    runtime.start_group(timeout_s=job["timeout_s"] + 30.0, store=store)


def _meet_over_tcp(rank: Rank, wait: datetime.timedelta) -> Any:
    """Open the TCP store: rank 0 binds and names the port, the parent passes the name on."""
    import torch.distributed as dist

    size = runtime.world_size()
    if runtime.rank() > 0:
        port = rank.wait_for("store")
        os.environ["MASTER_PORT"] = str(port)
        return dist.TCPStore("127.0.0.1", port, size, False, wait, wait_for_workers=False)
    listener = listen_on_loopback()
    port = listener.getsockname()[1]
    os.environ["MASTER_PORT"] = str(port)
    store = dist.TCPStore(
        "127.0.0.1",
        port,
        size,
        True,
        wait,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    rank.send("store", port)
    return store


def _leave_group() -> None:
    """Destroy the process group; an abort at exit would look like a failure."""
    import torch.distributed as dist

    with contextlib.suppress(Exception):
        if dist.is_initialized():
            dist.destroy_process_group()


def _pack_result(result: Any) -> bytes:
    try:
        return payload.dumps(result)
    except Exception as error:
        raise TypeError(
            f"the result ({type(result).__name__}) can't be sent back: {error}; "
            "return plain data (numbers, strings, tensors, state_dicts)"
        ) from None


def _redirect_output(descriptor: int) -> None:
    """Let everything that this process prints, C++ included, go to the parent's pipe."""
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = open(  # noqa: SIM115 (lives as long as the process)
            1 if name == "stdout" else 2,
            "w",
            encoding="utf-8",
            errors="backslashreplace",
            buffering=1,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return an exception as plain data: the exception's own class may not exist in the parent."""
    kind = type(error)
    return {
        "type": kind.__name__,
        "bases": [base.__name__ for base in kind.__mro__],
        "message": _message(error),
        "frames": describe_frames(traceback.extract_tb(error.__traceback__)),
        "time_s": time.monotonic(),
    }


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) was called"
    try:
        return str(error)
    except Exception as failure:
        return f"(its text could not be made: {type(failure).__name__})"


def describe_frames(summary: traceback.StackSummary) -> list[dict[str, Any]]:
    """Return a traceback's frames as plain data, without this package's own machinery."""
    frames = []
    for frame in summary:
        if os.path.dirname(os.path.abspath(frame.filename)) == _OWN_FOLDER:
            continue
        line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
        frames.append(
            {"file": frame.filename, "line": frame.lineno, "name": frame.name, "text": line}
        )
    return frames
