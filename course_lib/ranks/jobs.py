"""What the parent asks of a rank: who it is, its surroundings, and what to run."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from course_lib.ranks.placement import RANK_ENVIRONMENT


@dataclass(frozen=True)
class Membership:
    """A place in a new group of ranks, and the parent's surroundings for it.

    Attributes:
        environment: all of the rank's environment variables, RANK and WORLD_SIZE among them.
        folder: the working directory.
        path: sys.path.
        argv: sys.argv.
        timeout_s: how long a collective may wait, in seconds.
        seed: torch, random and NumPy are seeded with seed + rank.
        device: "cpu" or "cuda"; None lets the library choose.
        board: where the blackboard is.
        store_file: the file for the store; "" means a TCP store on loopback.
        fresh: whether to take over the surroundings; no if only the group is made anew.
    """

    environment: dict[str, str]
    folder: str
    path: list[str]
    argv: list[str]
    timeout_s: float
    seed: int
    device: str | None
    board: str
    store_file: str
    fresh: bool = True


@dataclass(frozen=True)
class Job:
    """One piece of work for one rank.

    Attributes:
        join: the group to join before, None to stay in the present one.
        call: the pickled (function, arguments) to call.
        cell: source of a notebook cell to run in the rank's own variables, in place of `call`.
        cell_file: the name under which the cell's lines are known.
        sources: text of files that only the parent knows (notebook cells), by name.
        leave: whether the ranks leave the group together afterwards.
        last: whether the rank ends afterwards, or after a failure.
    """

    join: Membership | None = None
    call: bytes | None = None
    cell: str | None = None
    cell_file: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    leave: bool = False
    last: bool = False


def membership(
    rank: int,
    world_size: int,
    *,
    timeout_s: float,
    seed: int,
    device: str | None,
    board: str,
    store_file: str,
    fresh: bool = True,
) -> Membership:
    """Describe one rank's place in a group, with this process's surroundings of this moment."""
    identity = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "GROUP_RANK": 0,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "MASTER_ADDR": "127.0.0.1",
        "COURSE_RANK": rank,
    }
    environment = RANK_ENVIRONMENT | dict(os.environ)
    environment |= {name: str(value) for name, value in identity.items()}
    here = os.getcwd()
    return Membership(
        environment=environment,
        folder=here,
        path=[entry or here for entry in sys.path],
        argv=list(sys.argv),
        timeout_s=timeout_s,
        seed=seed,
        device=device,
        board=board,
        store_file=store_file,
        fresh=fresh,
    )
