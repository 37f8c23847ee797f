"""What a group of ranks is, and why: the text of `%ranks status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.ranks import placement


def status_text(ranks: Sequence[dict[str, Any]], method: str) -> str:
    """Return the choices with their reasons, then a line for each rank.

    Args:
        ranks: what each rank told (see cells.status).
        method: how they were started, "fork" or "spawn".
    """
    first = ranks[0]
    start = placement.choose_start()
    reason = start.reason if start.value == method else "asked for"
    store = placement.choose_store()
    address = f"127.0.0.1:{first['port']}" if store.value == "tcp" else "a file"
    rows = [
        ("ranks", str(len(ranks)), "on this machine"),
        ("start", method, reason),
        ("backend", first["backend"].value, first["backend"].reason),
        ("threads each", first["threads"].value, first["threads"].reason),
        ("interface", first["interface"] or "none", "loopback: the ranks are on this machine"),
        ("store", address, store.reason),
        ("seed", f"{first['seed']} + rank", "each rank draws numbers of its own"),
    ]
    width = max(len(row[1]) for row in rows)
    lines = [f"{name:<13} {value:<{width}}  {why}" for name, value, why in rows]
    for number, rank in enumerate(ranks):
        names = ", ".join(rank["names"]) or "none"
        lines.append(
            f"rank {number:<8} process {rank['pid']}, {rank['device']}, variables: {names}"
        )
    return "\n".join(lines)
