"""`course train`: train a Transformer on additions or on a text, on one rank or on many."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from course_lib.train.events import RunEnded
    from course_lib.train.request import Request


Task = Annotated[str | None, typer.Option(help="addition or text.")]
Text = Annotated[str | None, typer.Option(help="A UTF-8 file to learn (task text).")]
Ranks = Annotated[int | None, typer.Option(help="How many processes, 1 to 64.")]
Steps = Annotated[int | None, typer.Option(help="How many updates.")]
BatchSize = Annotated[int | None, typer.Option(help="Rows of a step, over all ranks together.")]
Parts = Annotated[int | None, typer.Option(help="Parts in which a rank works through its rows.")]
Digits = Annotated[int | None, typer.Option(help="Of each number, 1 to 6 (task addition).")]
Context = Annotated[int | None, typer.Option(help="Characters read at once (task text).")]
Layers = Annotated[int | None, typer.Option(help="Blocks of the model.")]
Width = Annotated[int | None, typer.Option(help="D, how many numbers stand for a token.")]
Heads = Annotated[int | None, typer.Option(help="Attention heads.")]
Dropout = Annotated[float | None, typer.Option(help="Share set to zero in training.")]
Tied = Annotated[bool | None, typer.Option(help="The head is the token embedding, or not.")]
PeakLr = Annotated[float | None, typer.Option(help="The highest learning rate.")]
OptimizerName = Annotated[str | None, typer.Option(help="adamw or sgd.")]
EvalEvery = Annotated[int | None, typer.Option(help="Steps between evaluations; 0: at the end.")]
Seed = Annotated[int | None, typer.Option(help="Decides first weights and batches.")]
Dtype = Annotated[str | None, typer.Option(help="float32, float64 or bfloat16.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps.")]
Kernels = Annotated[str | None, typer.Option(help="fused (torch's layers) or readable (ours).")]
StopAfter = Annotated[int | None, typer.Option(help="End here, and leave the schedule as it is.")]
Out = Annotated[Path | None, typer.Option(help="The run's folder; a new one in runs/ if none.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON, nothing else.")]


def train(
    task: Task = None,
    text: Text = None,
    ranks: Ranks = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    grad_accum_steps: Parts = None,
    digits: Digits = None,
    context: Context = None,
    layers: Layers = None,
    width: Width = None,
    heads: Heads = None,
    dropout: Dropout = None,
    tied: Tied = None,
    peak_lr: PeakLr = None,
    optimizer: OptimizerName = None,
    eval_every: EvalEvery = None,
    seed: Seed = None,
    dtype: Dtype = None,
    device: Device = None,
    kernels: Kernels = None,
    stop_after: StopAfter = None,
    out: Out = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Train a Transformer: six stages a step, on one rank or on many.

    Leaves checkpoint.pt, metrics.jsonl and loss_curve.png in the run's folder. Ctrl-C ends the run
    after its step, ready to be resumed.
    """
    settings = dict(locals())  # every option by its name; what is left are TrainConfig's fields
    del settings["as_json"]
    run = {name: settings.pop(name) for name in ("ranks", "out", "resume", "stop_after")}
    from course_lib.train.request import make_request

    ended = _run(make_request(settings, **run), as_json)
    if ended.ended_by == "interrupt":
        raise typer.Exit(130)


def _run(request: "Request", as_json: bool) -> "RunEnded":
    """Train, draw the progress, and say how it ended."""
    import json

    from course_lib.cli._progress import progress
    from course_lib.ranks.report import RankError
    from course_lib.train.folder import new_folder
    from course_lib.train.parallel import fit_on_ranks

    out = request.out or new_folder(Path("runs"), request.config.task)
    try:
        with progress(quiet=as_json) as on_event:
            ended = fit_on_ranks(
                request.config,
                request.ranks,
                out=out,
                resume=request.resume,
                stop_after=request.stop_after,
                on_event=on_event,
            )
    except (FloatingPointError, RankError) as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    _draw(out)
    if as_json:
        typer.echo(json.dumps(ended.summary()))
    else:
        _report(ended, out)
    return ended


def _draw(out: Path) -> None:
    """Save the loss curve beside the metrics that it shows."""
    import matplotlib

    matplotlib.use("Agg")
    from course_lib.teach.figures.curves import save_run_curves
    from course_lib.train.folder import CURVE, METRICS, read_metrics

    save_run_curves(read_metrics(out / METRICS), out / CURVE)


def _report(ended: "RunEnded", out: Path) -> None:
    """Print the result, what the model can do now, and where everything is."""
    from course_lib.train.folder import CHECKPOINT, CURVE, METRICS

    parts = [f"step {ended.step:,} of {ended.steps:,}"]
    if ended.exact_match is not None:
        parts.append(
            f"{100 * ended.exact_match:.2f} % of {ended.heldout_problems:,} held-out problems right"
        )
    if ended.validation_loss is not None:
        parts.append(f"validation loss {ended.validation_loss:.4f}")
    parts += [f"{ended.time_s:.1f} s", f"{ended.tokens_per_s:,.0f} tokens/s"]
    typer.echo(" · ".join(parts))
    for sample in ended.samples:
        typer.echo(_written_out(sample) if ended.task == "addition" else f"\n{sample}\n")
    typer.echo(f"{out}: {CHECKPOINT}, {METRICS}, {CURVE}")
    if ended.ended_by != "finished":
        typer.echo(f"Go on with: course train --resume --out {out}")


def _written_out(row: str) -> str:
    """Return an answered problem in the everyday order of digits, and whether it is right."""
    from course_lib.data.addition import sum_of

    problem, answer = row.partition("=")[0], sum_of(row)
    a, b = problem.split("+")
    right = answer.isdigit() and int(answer) == int(a) + int(b)
    return f"  {a} + {b} = {answer}  " + ("right" if right else f"wrong, it is {int(a) + int(b)}")
