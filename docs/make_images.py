"""Make the pictures of the README from the course itself: `python docs/make_images.py`.

The classroom is a figure of chapter 00. The other picture is a learner's workbook in JupyterLab, as
`course lab` opens it, with the cells of the first sections just run.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from course_lib.cli import _jupyter  # noqa: E402
from course_lib.paths import course_folders  # noqa: E402
from course_lib.teach.chapters import load_chapters  # noqa: E402
from course_lib.teach.figures.classroom import classroom  # noqa: E402
from course_lib.teach.widgets.base import png_of  # noqa: E402
from course_lib.teach.workbook import update_workbook  # noqa: E402
from tests.browser.decks import online_page  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
RUN_UNTIL = """async heading => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  const cells = panel.content.widgets;
  panel.content.activeCellIndex = cells.findIndex(
    cell => cell.model.sharedModel.source.includes(heading));
  await app.commands.execute('notebook:run-all-above');
}"""


def draw_classroom() -> None:
    """Draw the class of four that learns as one."""
    (IMAGES / "classroom.png").write_bytes(png_of(classroom(title="A class of four learns as one")))


def photograph_jupyterlab() -> None:
    """Run the first sections of the first chapter's workbook and take a picture of them."""
    chapters = load_chapters(course_folders().chapters, ["00"])
    with TemporaryDirectory() as folder:
        update_workbook(chapters, Path(folder))
        server = _jupyter.start(Path(folder), _jupyter.free_port(), Path(folder) / ".course")
        try:
            address = server.url(f"lab/tree/{chapters[0].name}.ipynb")
            with online_page(address.split("/lab/")[0]) as (page, _):
                page.goto(address)
                page.locator(PANEL).wait_for(timeout=90_000)
                page.locator(IDLE).wait_for(timeout=60_000)
                page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
                page.evaluate(RUN_UNTIL, "## 3 ·")
                page.locator(IDLE).wait_for(timeout=120_000)
                picture = page.locator(f"{PANEL} .jp-OutputArea img").last
                picture.scroll_into_view_if_needed()
                page.wait_for_timeout(1500)
                page.screenshot(path=str(IMAGES / "jupyterlab.png"))
        finally:
            _jupyter.stop(server)


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_classroom()
    photograph_jupyterlab()
