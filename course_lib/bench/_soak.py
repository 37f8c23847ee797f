"""Many launches and cells in one notebook kernel: `python -m course_lib.bench._soak [N] [CELLS]`.

Prints what the kernel and everything below it hold before, between and after: processes,
descriptors, threads, temporary files, memory. All but the first row should be alike.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

SET_UP = """
import torch, torch.distributed as dist
from course_lib.ranks import launch
%load_ext course_lib
def work():
    x = torch.ones(1000)
    dist.all_reduce(x)
    return x
_ = launch(work)
"""
COLUMNS = ("after", "processes", "descriptors", "threads", "temporary files", "memory_mb")


def _holdings(label: str, pid: int) -> dict[str, Any]:
    """Count what a kernel and its ranks hold (memory: the kernel's and its ranks' own, in MB)."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    ours = [path for path in Path(tempfile.gettempdir()).iterdir() if "course" in path.name]
    counts = (
        label,
        len(family),
        sum(process.num_fds() for process in family),
        sum(process.num_threads() for process in family),
        len(ours),
        round(sum(process.memory_full_info().uss for process in family) / 1e6, 1),
    )
    return dict(zip(COLUMNS, counts, strict=True))


def soak(launches: int, cells: int) -> list[dict[str, Any]]:
    """Do so many launches and `%%ranks` cells in one kernel; return what is held on the way."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(
        kernel_name="python3", extra_arguments=["--HistoryManager.enabled=False"]
    )

    def run(source: str) -> None:
        reply = client.execute_interactive(source, timeout=300, output_hook=lambda message: None)
        assert reply["content"]["status"] == "ok", reply["content"].get("evalue")

    try:
        run(SET_UP)
        run("%%ranks 4\nx = torch.ones(1000)")
        for _ in range(5):  # lazily loaded parts come in with the first few
            run("_ = launch(work)")
            run("%%ranks\ndist.all_reduce(x)\nx /= world_size\nprint(x[0].item())")
        time.sleep(3.0)
        pid = manager.provisioner.pid  # type: ignore[union-attr]
        rows = [_holdings("a few of each", pid)]
        for part in (1, 2):
            run(f"for _ in range({launches // 2}): launch(work)")
            rows.append(_holdings(f"{part * launches // 2} launches", pid))
        for part in (1, 2):
            for _ in range(cells // 2):
                run("%%ranks\ndist.all_reduce(x)\nx /= world_size\nprint(x[0].item())")
            rows.append(_holdings(f"and {part * cells // 2} cells", pid))
        return rows
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def main() -> None:
    """Print the table in Markdown."""
    launches, cells = (int(word) for word in (*sys.argv[1:], "300", "2000")[:2])
    rows = soak(launches, cells)
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + " --- |" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
