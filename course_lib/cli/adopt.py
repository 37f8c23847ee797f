"""`course adopt`: bring edits made in JupyterLab home into the chapter."""

from pathlib import Path
from typing import Annotated

import typer


def adopt(
    notebook: Annotated[Path, typer.Argument(help="A solved notebook of notebooks/.")],
) -> None:
    """Write a notebook's edited cells into its chapter, keeping ids, roles, tags and stubs."""
    from course_lib.paths import course_folders
    from course_lib.teach.adopt import adopt as bring_home

    result = bring_home(notebook, course_folders())
    if not (result.changed or result.new or result.removed or result.moved):
        typer.echo(f"{result.path.name} has these cells already.")
        return
    for word in ("changed", "new", "removed"):
        ids = getattr(result, word)
        if ids:
            typer.echo(f"{word}: {', '.join(ids)}")
    if result.moved:
        typer.echo("the order of cells changed")
    typer.echo(f"Written to {result.path.name}; now run course build {result.path.stem[:2]}.")
