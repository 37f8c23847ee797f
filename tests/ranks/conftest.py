"""What the tests of ranks share: a check that nothing is left behind."""

import os
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from course_lib.ranks import processes


def living_ranks() -> list[int]:
    """Return the process ids of everything below this process but the zygote itself."""
    alive = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
        except psutil.ZombieProcess:
            command = "course_lib.ranks (a zombie)"  # it has ended, and waits for its parent
        except psutil.NoSuchProcess:
            continue
        if "course_lib.ranks" in command or "sleep 1000" in command:
            alive.append(child.pid)
    zygote = processes._zygote
    return [pid for pid in alive if zygote is None or pid != zygote.process.pid]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Assert that the test leaves no rank, thread or descriptor behind."""
    processes._get_zygote()
    threads = threading.active_count()
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    end_s = time.monotonic() + 2.0
    while living_ranks() and time.monotonic() < end_s:
        time.sleep(0.02)
    assert living_ranks() == []
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors
