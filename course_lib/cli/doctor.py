"""`course doctor`: is this machine ready, and if not, what mends it."""

from typing import Annotated

import typer


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one line of JSON; print nothing else.")
    ] = False,
) -> None:
    """Look at Python, torch, cores, memory, GPUs, JupyterLab; try four ranks. Exit 1 if ill."""
    import json
    from dataclasses import asdict

    from course_lib.cli import _health

    findings = []
    for look in _health.LOOKS:
        finding = _health.safely(look)
        findings.append(finding)
        if not as_json:
            mark = {"ok": "ok  ", "warning": "note", "ill": "ILL "}[finding.state]
            typer.echo(f"{mark}  {finding.name:<20} {finding.value}")
            if finding.mend:
                typer.echo(f"      {'':<20} → {finding.mend}")
    ill = [finding.name for finding in findings if finding.state == "ill"]
    if as_json:
        typer.echo(json.dumps({"ready": not ill, "findings": [asdict(f) for f in findings]}))
    else:
        typer.echo("This machine is not ready: " + ", ".join(ill) if ill else "Ready.")
    raise typer.Exit(1 if ill else 0)
