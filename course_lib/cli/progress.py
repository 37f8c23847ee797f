"""`course progress`: what you have done so far."""

from pathlib import Path
from typing import Annotated

import typer


def progress(
    folder: Annotated[
        Path, typer.Option("--folder", help="Your workbook; this folder if not given.")
    ] = Path("."),
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one line of JSON; print nothing else.")
    ] = False,
) -> None:
    """Show which exercises of your workbook are passed, tried, and helped by hints."""
    import json

    from course_lib.errors import UserError
    from course_lib.teach.checking.progress import FILE_NAME, Progress, file_in_use, read
    from course_lib.teach.exercises import registry

    file = file_in_use(folder)
    if file is None:
        raise UserError(
            f"There is no record of progress in {folder} ({FILE_NAME}): run this in your "
            "workbook's folder, which `course lab` makes, or name it with --folder."
        )
    records = read(file)
    rows = []
    for exercise in registry.all_exercises():
        record = records.get(exercise.id, Progress())
        status = "passed" if record.passed else "tried" if record.attempts else "to do"
        rows.append((exercise, status, record))
    done = sum(status == "passed" for _, status, _ in rows)
    if as_json:
        exercises = [
            {"exercise": e.id, "status": s, "attempts": r.attempts, "hints": r.hints}
            for e, s, r in rows
        ]
        typer.echo(json.dumps({"passed": done, "of": len(rows), "exercises": exercises}))
        return
    for exercise, status, record in rows:
        tries = f"attempts {record.attempts}, hints {record.hints}" if record.attempts else ""
        typer.echo(f"{exercise.id}  {status:<7} {exercise.title:<44} {tries}".rstrip())
    typer.echo(f"{done} of {len(rows)} exercises passed")
