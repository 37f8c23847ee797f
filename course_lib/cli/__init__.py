"""`course …`: one module per command, each named like its command.

Commands import what is heavy inside, so that `course --help` answers at once. A caller's mistake
(`UserError`) is printed as its one sentence, and ends with exit code 2.
"""

import importlib
import pkgutil
import sys

import typer

from course_lib.errors import UserError

app = typer.Typer(
    name="course",
    help="How models really train: the course's workbook, notebooks, slides, training, checks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _register_commands() -> None:
    """Add every module of this package that holds a function of its own name."""
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        command = getattr(module, info.name, None)
        if callable(command):
            app.command(info.name)(command)


_register_commands()


def main() -> None:
    """Run the command line; exit with 2 on a caller's mistake, 130 when interrupted."""
    try:
        app()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
