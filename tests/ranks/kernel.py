"""A real IPython kernel for tests: runs cells, returns what a person would see."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

LIMIT_S = 60.0


@dataclass
class Shown:
    """What a cell showed: its text, and the error's name and text ("" without one)."""

    text: str
    error_name: str = ""
    error: str = ""
    traceback: str = ""


class Kernel:
    """A running kernel."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(self, source: str, interrupts_s: tuple[float, ...] = ()) -> Shown:
        """Run a cell to its end; interrupt it at the given seconds after its start."""
        request = self.client.execute(source)
        start_s = time.monotonic()
        waiting = list(interrupts_s)
        shown = Shown("")
        while time.monotonic() - start_s < LIMIT_S:
            if waiting and time.monotonic() - start_s >= waiting[0]:
                waiting.pop(0)
                self.manager.interrupt_kernel()
            with contextlib.suppress(Exception):
                message = self.client.get_iopub_msg(timeout=0.02)
                if message["parent_header"].get("msg_id") != request:
                    continue
                content = message["content"]
                if message["msg_type"] == "stream":
                    shown.text += content["text"]
                elif message["msg_type"] == "execute_result":
                    shown.text += content["data"]["text/plain"] + "\n"
                elif message["msg_type"] == "error":
                    shown.error_name, shown.error = content["ename"], content["evalue"]
                    shown.traceback = "\n".join(content["traceback"])
                elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                    return shown
        raise TimeoutError(f"the cell did not end: {source}")


@contextlib.contextmanager
def running_kernel() -> Iterator[Kernel]:
    """Start a kernel, and shut it down at the end of the block."""
    manager = KernelManager(kernel_name="python3")
    # No history file: it comes and goes among the descriptors, and a test's cells are no history.
    manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=LIMIT_S)
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        if manager.is_alive():
            manager.shutdown_kernel(now=True)
