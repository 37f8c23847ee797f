"""`course test`: run the test suite of the checkout."""

from typing import Annotated

import typer


def test(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments for pytest, such as tests/data -x.")
    ] = None,
) -> None:
    """Run the checkout's tests, two files at a time; exit with pytest's code."""
    import os
    import subprocess
    import sys

    from course_lib.errors import UserError
    from course_lib.paths import repository

    root = repository()
    if root is None:
        raise UserError(
            "This course_lib is installed without its tests; clone the course and run make test."
        )
    command = [sys.executable, "-m", "pytest", *(arguments or ["-n", "2"])]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    raise typer.Exit(subprocess.run(command, cwd=root, env=environment, check=False).returncode)
