"""Execute a notebook so that its stored outputs are the same on every run.

The kernel is this very interpreter, whatever kernels the user has installed, with one thread and
passive waiting: as nbval runs it, two notebooks at a time.
"""

import os
import sys
import time
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course_lib.errors import UserError

KERNEL_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PICTURES = ("image/png", "image/svg+xml")


class ThisInterpreter(KernelSpecManager):
    """Knows one kernel: the interpreter that runs this code."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernel of this interpreter, whatever name is asked for."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        argv.append("--log-level=ERROR")  # else it warns about its loopback sockets each time
        return KernelSpec(argv=argv, display_name="Python 3 (ipykernel)", language="python")


def execute(notebook: NotebookNode, folder: Path, cell_timeout_s: int = 120) -> dict[str, float]:
    """Run every cell in place, in `folder`, and return the seconds of each code cell by its id.

    Raises:
        UserError: if a cell fails, runs too long, or the kernel dies; the sentence names the cell.
    """
    times_s: dict[str, float] = {}
    started: dict[str, float] = {}
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisInterpreter()),
        timeout=cell_timeout_s,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
        on_cell_execute=lambda cell, cell_index: started.update({cell.id: time.perf_counter()}),
        on_cell_executed=lambda cell, cell_index, execute_reply: times_s.update(
            {cell.id: time.perf_counter() - started[cell.id]}
        ),
    )
    try:
        client.execute(env=os.environ | KERNEL_ENVIRONMENT)
    except CellExecutionError as error:
        raise UserError(f"{_failed_cell(notebook)} failed: {_first_lines(error)}") from error
    except CellTimeoutError as error:
        raise UserError(
            f"A cell ran longer than {cell_timeout_s} s: {_first_lines(error)}"
        ) from error
    except DeadKernelError as error:
        raise UserError(
            "The kernel died while the notebook ran; was there enough memory?"
        ) from error
    notebook.metadata.pop("language_info", None)
    notebook.metadata.pop("widgets", None)
    settle_outputs(notebook)
    return times_s


def _failed_cell(notebook: NotebookNode) -> str:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get(
                "tags", []
            ):
                return f"Cell {cell.id}"
    return "A cell"


def _first_lines(error: Exception) -> str:
    text = str(getattr(error, "ename", "")) and f"{error.ename}: {error.evalue}"  # type: ignore[attr-defined]
    return " ".join((text or str(error)).split())[:500]


def settle_outputs(notebook: NotebookNode) -> None:
    """Drop what changes between runs: the random ids of widgets that have a static picture.

    A stored widget without its kernel shows an error; its static picture shows everywhere.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if WIDGET_VIEW in data and any(kind in data for kind in PICTURES):
                del data[WIDGET_VIEW]


def keep_stored_timings(new: NotebookNode, old: NotebookNode) -> None:
    """Keep the stored outputs of unchanged cells whose outputs are timings.

    They differ on every run and say nothing new; without this no rebuild would equal the last.
    """
    before = {cell.id: cell for cell in old.cells}
    for cell in new.cells:
        earlier = before.get(cell.id)
        if (
            earlier is not None
            and cell.cell_type == "code"
            and "nbval-ignore-output" in cell.metadata.get("tags", [])
            and earlier.source == cell.source
            and _kinds(earlier) == _kinds(cell)
        ):
            cell.outputs = earlier.outputs


def _kinds(cell: NotebookNode) -> list[tuple[str, tuple[str, ...]]]:
    outputs = cell.get("outputs", [])
    return [(out.output_type, tuple(sorted(out.get("data", {})))) for out in outputs]
