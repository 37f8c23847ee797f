"""What runs inside a rank: take a job, set up, run the code, say how it ended, clean up.

The main thread runs the learner's code. A second thread reads the channel, so that a rank that is
stuck can still say where and can be broken off; it ends the process when the parent has gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

from course_lib.ranks import cells, group, payload, runtime
from course_lib.ranks.channel import Channel, ChannelClosedError
from course_lib.ranks.describe import describe_error, describe_frames
from course_lib.ranks.jobs import Job

_BREAK_PAUSE_S = 0.1


class Rank:
    """One rank's side of the conversation with the parent."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.interruptible = False
        self._send_lock = threading.Lock()
        self._main_thread_id = threading.get_ident()
        signal.signal(signal.SIGINT, self._on_interrupt)
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
                elif kind == "break":
                    self._break_off()
                else:
                    self.inbox.put((kind, content))
        except ChannelClosedError:
            os._exit(1)  # the parent has gone: nobody is left to work for

    def _where(self) -> list[dict[str, Any]]:
        """Return the frames that the main thread is in, outermost first."""
        frame = sys._current_frames().get(self._main_thread_id)
        return describe_frames(traceback.StackSummary.extract(traceback.walk_stack(frame)))[::-1]

    def _break_off(self) -> None:
        """Get the main thread out of the learner's code: first out of waits, then by interrupt."""
        group.break_connections()
        time.sleep(_BREAK_PAUSE_S)
        if self.interruptible:
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self._main_thread_id, signal.SIGINT)
            else:
                signal.raise_signal(signal.SIGINT)

    def _on_interrupt(self, number: int, frame: Any) -> None:
        """Interrupt the learner's code, once, and nothing else."""
        if self.interruptible:
            self.interruptible = False
            raise KeyboardInterrupt


def main(channel_descriptor: int, output_descriptor: int) -> int:
    """Serve jobs until one says that it was the last; return the exit status."""
    _redirect_output(output_descriptor)
    rank = Rank(Channel(socket.socket(fileno=channel_descriptor)))
    while True:
        job: Job = rank.wait_for("job")
        try:
            ended_well = _run_job(rank, job)
        except KeyboardInterrupt as error:  # it struck just behind the learner's code
            rank.send("error", describe_error(error))
            ended_well = False
        _flush()
        if job.last:
            return 0 if ended_well else 1


def _run_job(rank: Rank, job: Job) -> bool:
    """Run one job: set-up, code, result or error, clean-up; tell whether all went well."""
    try:
        payload.remember_sources(job.sources)
        if job.join is not None:
            _join(rank, job)
        rank.interruptible = True
        started_s = time.monotonic()
        result = _run_code(job)
        time_s = time.monotonic() - started_s
        rank.interruptible = False
        _flush()
        packed = _pack_result(result)
        rank.send("result", (packed, time_s))
    except BaseException as error:  # whatever the learner's code raises is the answer
        rank.interruptible = False
        _flush()
        rank.send("error", describe_error(error))
        if not job.last:
            group.break_connections()  # others may wait for this rank: let them hear of it
        return False
    if job.leave:
        rank.wait_for("close")
        if not job.last or runtime.backend() == "nccl":
            group.leave()  # a gloo rank that ends at once closes its connections no less
        rank.send("closed")
    return True


def _join(rank: Rank, job: Job) -> None:
    """Join the job's group; go on when all have joined, so that no failure strikes a set-up."""
    assert job.join is not None
    group.leave()
    if job.join.fresh:
        group.take_over(job.join)
    runtime.configure(runtime.backend_choice(), lambda event: rank.send("event", event))
    group.join(job.join, lambda port: rank.send("store", port), lambda: rank.wait_for("store"))
    rank.send("ready")
    rank.wait_for("go")


def _run_code(job: Job) -> Any:
    if job.cell is not None:
        return cells.run(job.cell, job.cell_file)
    if job.call is not None:
        fn, args = payload.loads(job.call)
        return fn(*args)
    return None


def _pack_result(result: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    try:
        return payload.dumps_apart(result)
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
