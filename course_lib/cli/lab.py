"""`course lab`: the learner's workbook, opened in JupyterLab."""

from pathlib import Path
from typing import Annotated

import typer


def lab(
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Your workbook; ./workbook if not given.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="A port; a free one if not given."),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, open no browser.")
    ] = False,
    only_update: Annotated[
        bool, typer.Option("--only-update", help="Bring the workbook up to date, start nothing.")
    ] = False,
) -> None:
    """Make or update your workbook and open JupyterLab on it; what you changed stays yours."""
    import webbrowser

    from course_lib.cli import _jupyter
    from course_lib.errors import UserError
    from course_lib.paths import course_folders
    from course_lib.teach.chapters import load_chapters
    from course_lib.teach.checking import progress
    from course_lib.teach.workbook import KEPT_FOLDER, update_workbook

    if port is not None and not _jupyter.port_is_free(port):
        raise UserError(f"Port {port} is taken; name another, or leave --port out for a free one.")
    folders = course_folders()
    folder = (folder or (folders.root or Path.cwd()) / "workbook").resolve()
    chapters = load_chapters(folders.chapters)
    for sentence in update_workbook(chapters, folder):
        typer.echo(sentence)
    progress.start(folder)
    typer.echo(f"Your workbook is in {folder}.")
    if only_update:
        return
    server = _jupyter.start(folder, port or _jupyter.free_port(), folder / KEPT_FOLDER / "lab")
    _jupyter.end_by_signal()
    try:
        address = server.url(f"lab/tree/{chapters[0].name}.ipynb")
        typer.echo(f"JupyterLab is at {address}")
        typer.echo("Ctrl-C ends it; your work is saved in the workbook.")
        if not no_open and _jupyter.can_open_browser():
            webbrowser.open(address)
        raise typer.Exit(server.process.wait())
    except KeyboardInterrupt:
        typer.echo("JupyterLab has ended.")
    finally:
        _jupyter.stop(server)
