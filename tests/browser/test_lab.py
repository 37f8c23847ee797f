"""The workbook in JupyterLab in a real browser, as a learner opens it: runs, its widget moves."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from course_lib.paths import course_folders
from course_lib.teach.chapters import chapter_paths
from tests.browser.decks import has_browser, online_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not has_browser() and not os.environ.get("CI"), reason="there is no Chromium to open"
    ),
]
FIRST_CHAPTER = chapter_paths(course_folders().chapters)[0]
RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  return await app.commands.execute('notebook:run-all-cells');
}"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """Run `course lab` with settings of its own and give the address it prints."""
    folders = {
        name: str(tmp_path / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")
    }
    chapters = tmp_path / "course" / "chapters"
    chapters.mkdir(parents=True)
    shutil.copy(FIRST_CHAPTER, chapters)
    environment = (
        os.environ | folders | {"PYTHONUNBUFFERED": "1", "COURSE_HOME": str(chapters.parent)}
    )
    command = [sys.executable, "-c", "from course_lib.cli import main; main()", "lab"]
    process = subprocess.Popen(
        [*command, "--no-open", "--folder", str(tmp_path / "workbook")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = (re.search(r"http://127\.0\.0\.1:\d+/\S+", line) for line in process.stdout)
        address = next((match[0] for match in found if match), None)
        assert address is not None, "course lab named no address"
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def open_and_run(page: Page, address: str) -> None:
    """Open the first chapter and run all of its cells."""
    page.goto(address)
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").wait_for(timeout=90_000)
    indicator = page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    indicator.wait_for(timeout=60_000)
    page.evaluate(RUN_ALL)
    indicator.wait_for(timeout=240_000)


def test_the_first_chapter_runs_and_its_widget_moves(lab: str):
    assert f"/lab/tree/{FIRST_CHAPTER.stem}.ipynb" in lab
    with online_page(lab.split("/lab/")[0]) as (page, problems):
        open_and_run(page, lab)
        notebook = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        expect(notebook.locator('[data-mime-type="application/vnd.jupyter.error"]')).to_have_count(
            0
        )
        expect(notebook.get_by_text("not attempted yet").first).to_be_visible()
        slider = notebook.locator('.widget-slider [role="slider"], .noUi-handle').first
        picture = notebook.locator(".widget-image").first
        before = picture.get_attribute("src")
        assert before
        slider.scroll_into_view_if_needed()
        slider.focus()
        page.keyboard.press("ArrowRight")
        expect(picture).not_to_have_attribute("src", before, timeout=20_000)
        assert problems == []
