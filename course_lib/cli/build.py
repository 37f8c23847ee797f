"""`course build`: chapters to executed notebooks, student edition and blanks."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from course_lib.teach.build import Built

CELL_LIMIT_S = 45.0
CHAPTER_LIMIT_S = 90.0


def build(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Chapter numbers, such as 00 03; all if none.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Execute nothing; prove that all editions agree.")
    ] = False,
    measures: Annotated[
        bool, typer.Option("--measures", help="Print a table of each chapter's measures.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Take new timings too, instead of keeping stored ones.")
    ] = False,
) -> None:
    """Execute chapters into notebooks/, and write the student edition and the blanks."""
    from course_lib.paths import course_folders
    from course_lib.teach import build as pipeline

    folders = course_folders()
    if measures:
        _print_measures(chapters)
        return
    if check:
        problems = pipeline.check(folders, chapters)
        for problem in problems:
            typer.echo(problem, err=True)
        if problems:
            raise typer.Exit(1)
        typer.echo("Chapters, notebooks, student edition and blanks agree.")
        return
    pipeline.build(folders, chapters, fresh=fresh, on_built=_report)


def _report(built: "Built") -> None:
    """Say what a chapter took, and where it is over its limits."""
    typer.echo(
        f"{built.name}: {built.time_s:.1f} s, slowest cell {built.slowest_cell} "
        f"{built.slowest_time_s:.1f} s"
    )
    if built.time_s > CHAPTER_LIMIT_S:
        typer.echo(f"  longer than the {CHAPTER_LIMIT_S:.0f} s that a chapter may take", err=True)
    if built.slowest_time_s > CELL_LIMIT_S:
        typer.echo(f"  a cell longer than the {CELL_LIMIT_S:.0f} s that one may take", err=True)


def _print_measures(numbers: list[str] | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from course_lib.paths import course_folders
    from course_lib.teach.chapters import load_chapters
    from course_lib.teach.measures import measure

    table = Table(title="Lengths in lines, solutions left out; checked: share of code cells")
    for name in ("chapter", "cells", "code", "median", "max", "checked", "exercises", "slides"):
        table.add_column(name, no_wrap=True)
    table.add_column("notes", no_wrap=True)
    for chapter in load_chapters(course_folders().chapters, numbers):
        m = measure(chapter)
        table.add_row(
            m.chapter,
            str(m.cells),
            str(m.code_cells),
            f"{m.code_lines_median:g}",
            str(m.code_lines_max),
            f"{m.check_share:.0%}",
            str(m.exercises),
            str(m.slides),
            str(m.notes),
        )
    Console(width=100).print(table)
