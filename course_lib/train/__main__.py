"""`torchrun --nproc-per-node N -m course_lib.train ...`: the same run, on ranks of torchrun.

Options are the fields of TrainConfig (`--batch-size 256`), and --out, --resume, --stop-after,
--json as in `course train`. Rank 0 prints; nothing is drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path

from course_lib.config import TrainConfig
from course_lib.errors import UserError
from course_lib.ranks import runtime
from course_lib.train.events import Evaluated, Event, RunEnded, RunStarted
from course_lib.train.fit import fit
from course_lib.train.folder import new_folder
from course_lib.train.request import Request, make_request


def main(arguments: list[str] | None = None) -> int:
    """Run with these arguments (None: the command line's); return the exit code."""
    options = vars(_parser().parse_args(arguments))
    as_json = options.pop("json")
    run = {name: options.pop(name) for name in ("out", "resume", "stop_after")}
    first = runtime.rank() == 0
    try:
        request = make_request(options, ranks=runtime.world_size(), **run)
        with runtime.process_group(request.config.device.partition(":")[0]):
            ended = _run(request, quiet=as_json)
    except (UserError, FloatingPointError) as error:
        if first:
            print(error, file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    if first and as_json:
        print(json.dumps(ended.summary()))
    return 130 if ended.ended_by == "interrupt" else 0


def _run(request: Request, quiet: bool) -> RunEnded:
    out = request.out
    if out is None and runtime.rank() == 0:
        out = new_folder(Path("runs"), request.config.task)
    return fit(
        request.config,
        out=out,
        resume=request.resume,
        stop_after=request.stop_after,
        on_event=None if quiet else _print,
    ).result


def _print(event: Event) -> None:
    if isinstance(event, RunStarted | Evaluated | RunEnded):
        print(json.dumps(event.as_dict()), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="course_lib.train", description=__doc__)
    for field in fields(TrainConfig):
        flag = "--" + field.name.replace("_", "-")
        if field.name == "betas":
            parser.add_argument(flag, type=float, nargs=2)
        elif field.name == "tied":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction)
        else:
            kind = type(field.default) if field.default is not None else str
            parser.add_argument(flag, type=kind)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
