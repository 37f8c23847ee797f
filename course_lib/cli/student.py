"""`course student`: write the student edition."""

from pathlib import Path
from typing import Annotated

import typer


def student(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Chapter numbers, such as 00 03; all if none.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; build/student if not given.")
    ] = None,
) -> None:
    """Write the student edition: stubs for solutions, no outputs; proved free of solutions."""
    from course_lib.paths import course_folders
    from course_lib.teach.chapters import load_chapters
    from course_lib.teach.student import write_student_editions

    folders = course_folders()
    for path in write_student_editions(
        load_chapters(folders.chapters, chapters), out or folders.student
    ):
        typer.echo(str(path))
