"""`course bench NAME`: measure a hand-written part against its peer, in turn, on this machine."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from course_lib.bench.result import BenchResult


def bench(
    name: Annotated[str, typer.Argument(help="Which bench; a wrong name lists them all.")] = "",
    text: Annotated[Path | None, typer.Option(help="A UTF-8 file (bench text).")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, 1 or more.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Measure one part of the course against its peer; speedup above 1 means ours is faster."""
    import json

    result = _load(name).run(**_options_for(name, {"text": text, "seeds": seeds}))
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    else:
        _print_table(result)


def bench_names() -> list[str]:
    """List the benches: the modules of course_lib.bench that have a function `run`."""
    import pkgutil

    from course_lib import bench as package

    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    return sorted(name for name in names if name not in _HELPERS and not name.startswith("_"))


_HELPERS = ("result",)


def _load(name: str) -> ModuleType:
    import importlib

    from course_lib.errors import UserError

    names = bench_names()
    if name not in names:
        raise UserError(f"There is no bench {name!r}: use one of {', '.join(names)}.")
    return importlib.import_module(f"course_lib.bench.{name}")


def _options_for(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Keep the options that were given, and refuse those that this bench has no use for."""
    import inspect

    from course_lib.errors import UserError

    known = inspect.signature(_load(name).run).parameters
    given = {option: value for option, value in given.items() if value is not None}
    for option, value in given.items():
        if option not in known:
            takes = ", ".join(f"--{other}" for other in ("text", "seeds") if other in known)
            raise UserError(
                f"The bench {name} has no use for --{option} {value}: "
                + (f"it takes {takes}." if takes else "leave it out.")
            )
    return given


def _print_table(result: "BenchResult") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{result.name}: {result.speedup:.2f} times as fast as the peer")
    table = Table()
    for key in result.rows[0] if result.rows else ():
        table.add_column(key.replace("_", " "), justify="right")
    for row in result.rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console.print(table)
    for note in result.notes:
        console.print(note)


def _cell(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
