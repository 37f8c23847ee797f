"""A thread beside the answer that ends what can't end itself: deadlocks, and endless compiled code.

A deadlock is seen, not guessed from a time limit: every rank has used next to no processor time for
a while. Each then writes where its main thread stands, and ends.
"""

import os
import sys
import threading
import time

from course_lib.teach.checking import agreement as shared
from course_lib.teach.checking.agreement import Agreement
from course_lib.teach.checking.log import Log

LOOK_EVERY_S = 0.05
DEADLOCK_S = 1.2
IDLE_SHARE = 0.05
HARD_LIMIT_GRACE_S = 0.7


class Watchdog:
    """Watches the thread that makes it, until `stop`.

    Args:
        log: this rank's log; gets where the rank waited.
        agreement: what the ranks share.
        time_limit_s: after this and a little more, the process is ended whatever it does.
        modules: names of modules whose code is the learner's.
    """

    def __init__(
        self, log: Log, agreement: Agreement, time_limit_s: float, modules: tuple[str, ...]
    ) -> None:
        self._log, self._agreement, self._modules = log, agreement, modules
        self._hard_limit_s = time.monotonic() + time_limit_s + HARD_LIMIT_GRACE_S
        self._main = threading.get_ident()
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="course-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def _watch(self) -> None:
        since_s, used_s = time.monotonic(), time.process_time()
        while not self._stopped.wait(LOOK_EVERY_S):
            now_s = time.monotonic()
            if now_s > self._hard_limit_s:
                self._tell_and_end("timeout")
            states = self._agreement.states()
            if shared.OVER in states and states[self._agreement.rank] != shared.OVER:
                os._exit(0)
            if shared.TOLD in states:
                self._tell_and_end("deadlock")
            if states[self._agreement.rank] == shared.DONE:
                since_s, used_s = now_s, time.process_time()
            elif time.process_time() - used_s > IDLE_SHARE * max(now_s - since_s, LOOK_EVERY_S):
                self._agreement.set_state(shared.BUSY)
                since_s, used_s = now_s, time.process_time()
            elif now_s - since_s > DEADLOCK_S:
                self._agreement.set_state(shared.IDLE)
            if self._agreement.world_size > 1 and self._is_deadlock():
                self._tell_and_end("deadlock")

    def _is_deadlock(self) -> bool:
        states = self._agreement.states()
        return shared.IDLE in states and set(states) <= {shared.IDLE, shared.DONE}

    def _tell_and_end(self, kind: str) -> None:
        """Write where this rank stands, give the others a moment to do the same, and exit."""
        done = self._agreement.states()[self._agreement.rank] == shared.DONE
        line = None if done else self._learners_line()
        self._log.stuck(kind, line)
        self._agreement.set_state(shared.TOLD)
        deadline = time.monotonic() + 0.3
        while set(self._agreement.states()) != {shared.TOLD} and time.monotonic() < deadline:
            time.sleep(0.005)
        os._exit(0)

    def _learners_line(self) -> tuple[str, int] | None:
        frame = sys._current_frames().get(self._main)
        while frame is not None and frame.f_code.co_name != "run_property":
            if frame.f_globals.get("__name__") in self._modules:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None
