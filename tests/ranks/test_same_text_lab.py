"""The notebook of test_same_text shows the same in JupyterLab in a real browser."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.browser.decks import has_browser, online_page
from tests.ranks.test_same_text import make_notebook, shown_text

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not has_browser() and not os.environ.get("CI"), reason="there is no Chromium to open"
    ),
]
# One after the other: "run all" sends all at once, and the kernel drops what follows an error.
RUN_ALL_AND_SAVE = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  for (let number = 0; number < panel.content.widgets.length; number++) {
    panel.content.activeCellIndex = number;
    await app.commands.execute('notebook:run-cell');
  }
  await app.commands.execute('docmanager:save');
}"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """Run JupyterLab on the test's folder and give its address."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    own = {
        name: str(tmp_path / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--IdentityProvider.token=", "--ServerApp.password=", "--allow-root"),
        *(f"--ServerApp.root_dir={tmp_path}", "--LabApp.expose_app_in_browser=True"),
    ]
    process = subprocess.Popen(
        command,
        env=os.environ | own,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api/status", timeout=1)
                break
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def test_jupyterlab_shows_what_nbclient_stores(tmp_path: Path, lab: str) -> None:
    stored = make_notebook(tmp_path / "stored.ipynb")
    NotebookClient(stored, timeout=60, kernel_name="python3", coalesce_streams=True).execute()
    opened = tmp_path / "opened.ipynb"
    make_notebook(opened)
    with online_page(lab) as (page, _):
        page.goto(f"{lab}/lab/tree/opened.ipynb")
        page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").wait_for(timeout=90_000)
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=60_000)
        page.evaluate(RUN_ALL_AND_SAVE)
        seen = nbformat.read(opened, as_version=4)
    texts = [[shown_text(cell) for cell in notebook.cells] for notebook in (stored, seen)]
    assert [bool(cell.execution_count) for cell in seen.cells] == [True] * len(seen.cells)
    assert texts[0] == texts[1]
