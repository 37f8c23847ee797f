"""A live bar for a run: drawn from fit's events, on a terminal; plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from course_lib.train.events import Evaluated, Event, RunStarted, StepDone


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[Event], None] | None]:
    """Yield a function that shows each event; None where nothing is to be shown.

    Args:
        quiet: for --json: stdout and stderr stay empty.
    """
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
        )
        with bar:
            yield _Bar(bar)
    else:
        yield _print_line


class _Bar:
    """Keeps one bar in step with the events."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._score = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._bar.console.print(start_line(event))
            for note in event.notes:
                self._bar.console.print(note)
            self._task = self._bar.add_task(
                event.task, total=event.steps, completed=event.step, figures=""
            )
        elif isinstance(event, Evaluated):
            self._score = score_words(event)
        elif isinstance(event, StepDone):
            figures = f"loss {event.loss:.3f} · {event.tokens_per_s:,.0f} tokens/s"
            if self._score:
                figures += f" · {self._score}"
            self._bar.update(self._task, completed=event.step, figures=figures)


def _print_line(event: Event) -> None:
    if isinstance(event, RunStarted):
        typer.echo(start_line(event))
        for note in event.notes:
            typer.echo(note)
    elif isinstance(event, Evaluated):
        typer.echo(f"step {event.step}: {score_words(event)}")


def start_line(event: RunStarted) -> str:
    """Say what is about to run."""
    return (
        f"{event.task}: {event.parameters:,} parameters, {event.ranks} "
        f"rank{'s' * (event.ranks != 1)} on {event.device}, {event.threads_per_rank} "
        f"thread{'s' * (event.threads_per_rank != 1)} each, {event.dtype}, "
        f"steps {event.step} to {event.steps}"
    )


def score_words(event: Evaluated) -> str:
    """Say the score of an evaluation."""
    if event.exact_match is not None:
        return f"exact match {100 * event.exact_match:.1f} %"
    return f"validation loss {event.validation_loss:.3f}"
