"""The same notebook gives the same text under nbclient and under `pytest --nbval`."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELLS = [
    "%load_ext course_lib\n"
    "import torch, torch.distributed as dist\n"
    "from course_lib.ranks import launch",
    "def work(x):\n"
    "    value = torch.tensor(x + dist.get_rank())\n"
    "    print('before', value.item())\n"
    "    dist.all_reduce(value)\n"
    "    print('after', value.item())\n"
    "    return value.item()\n"
    "launch(work, 1.0, world_size=3)",
    "%%ranks 4\nx = torch.tensor([10.0 * (rank + 1)])\nx",
    "%%ranks\ndist.all_reduce(x)\nprint(x / world_size)",
    "%ranks pull x\nx",
    "def wrong():\n"
    "    if dist.get_rank() == 1:\n"
    "        raise ValueError('no')\n"
    "    dist.barrier()\n"
    "launch(wrong, world_size=3)",
    "%%ranks\nif rank == 2:\n    dist.all_reduce(x)",
    "%%ranks\nprint('still', rank)",
    "%ranks stop",
]


def make_notebook(path: Path) -> nbformat.NotebookNode:
    """Write a notebook of the cells; those that show an error are marked as meant."""
    cells = []
    for number, source in enumerate(CELLS):
        cell = nbformat.v4.new_code_cell(source, id=f"cell-{number}")
        if "raise" in source or "if rank == 2" in source:
            cell.metadata["tags"] = ["raises-exception"]
        cells.append(cell)
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, path)
    return notebook


def shown_text(cell: nbformat.NotebookNode) -> str:
    """Return what a cell shows, its error included."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}")
        else:
            parts.append(output.data["text/plain"])
    return "\n".join(parts)


def test_nbclient_and_nbval_show_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ranks.ipynb"
    notebook = make_notebook(path)
    NotebookClient(notebook, timeout=60, kernel_name="python3", coalesce_streams=True).execute()
    nbformat.write(notebook, path)
    texts = [shown_text(cell) for cell in notebook.cells]
    assert texts[1].splitlines()[0] == "[rank 0] before 1.0"
    assert texts[1].splitlines()[-1] == "[6.0, 6.0, 6.0]"
    assert texts[3].splitlines() == [f"[rank {rank}] tensor([25.])" for rank in range(4)]
    assert texts[5].startswith(
        "RankError: rank 1 failed: ValueError: no\n  this cell, line 3, in wrong"
    )
    assert (
        notebook.cells[5].outputs[0].traceback[0].splitlines()[1].startswith("  Cell In[6], line")
    )
    assert notebook.cells[6].outputs[0].traceback[0].splitlines()[2] == "  Cell In[7], line 3"
    assert texts[6].startswith("RankDeadlockError: rank 2 waits for ever")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q"),
            *("--nbval-cell-timeout=60", "-p", "no:cacheprovider", path.name),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(CELLS)} passed" in done.stdout
    # It does compare: another stored text fails.
    notebook.cells[3].outputs[0].text = notebook.cells[3].outputs[0].text.replace("25", "26")
    nbformat.write(notebook, path)
    again = subprocess.run(done.args, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert again.returncode == 1
