"""`course check`: check the exercises of a workbook from a terminal."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Chapter numbers, such as 00 08; all if none.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="Your workbook; this folder if not given.")
    ] = Path("."),
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one line of JSON; print nothing else.")
    ] = False,
) -> None:
    """Check the answers in your notebooks; exit with 1 if one is wrong (a blank is not wrong)."""
    import json

    from course_lib.teach.checking import progress
    from course_lib.teach.checking.answers import check_folder

    counts = {"passed": 0, "failed": 0, "blank": 0}
    rows = []
    for result in check_folder(folder, chapters):
        counts[result.status] += 1
        rows.append({"exercise": result.exercise_id, "status": result.status})
        if result.status != "blank":
            progress.attempted(result.exercise_id, result.passed, folder)
        if not as_json:
            typer.echo(str(result) if result.status == "failed" else result.headline)
    if as_json:
        typer.echo(json.dumps({**counts, "exercises": rows}))
    else:
        typer.echo(
            f"{counts['passed']} passed, {counts['failed']} not right yet, "
            f"{counts['blank']} not attempted yet"
        )
    if counts["failed"]:
        raise typer.Exit(1)
