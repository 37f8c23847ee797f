"""`%%ranks` and `%ranks`: cells that run on standing ranks (`%load_ext course_lib`).

%%ranks 4                 run the cell on four ranks; started if need be
%%ranks                   run it on the ranks that are there (4 if none are)
%%ranks --only 1          on rank 1 alone (--only 0,2 on both)
%%ranks --timeout 120     with another time limit, in seconds
%ranks status             what the ranks are, and why
%ranks push name ...      copy variables of the notebook to every rank
%ranks pull name          copy a variable of every rank here, as a list in rank order
%ranks pull name --only 1 copy that of one rank
%ranks stop               end the ranks
"""

from __future__ import annotations

import shlex
from typing import Any

from course_lib.errors import UserError
from course_lib.ranks import processes
from course_lib.ranks.pool import Pool

_DEFAULT_WORLD_SIZE = 4
_USAGE = (
    "use %%ranks [number] [--only RANKS] [--timeout SECONDS] above a cell, or "
    "%ranks status | stop | push NAMES | pull NAME [--only RANK]"
)


class RanksMagic:
    """The two magics and the pool behind them; one for each notebook."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.pool: Pool | None = None

    def cell(self, line: str, source: str) -> None:
        """Run a cell on the ranks: `%%ranks [number] [--only RANKS] [--timeout SECONDS]`."""
        words, options = _parse(line, ("only", "timeout"))
        if len(words) > 1:
            raise UserError(f"{' '.join(words)!r} is not one number of ranks: {_USAGE}.")
        pool = self._pool(_whole_number(words[0], "a number of ranks") if words else None)
        # An empty first line stands for the magic's own: line numbers are those of the cell.
        pool.run_cell(
            "\n" + source,
            only=_rank_list(options.get("only")),
            timeout_s=_seconds(options.get("timeout", "60")),
        )

    def line(self, line: str) -> None:
        """Do what `%ranks status | stop | push | pull` asks for."""
        words, options = _parse(line, ("only",))
        command = words[0] if words else "status"
        only = _rank_list(options.get("only"))
        if command == "status" and len(words) <= 1:
            print(self.status())
        elif command == "stop" and len(words) == 1:
            self.stop()
        elif command == "push" and len(words) > 1:
            self._pool(None).push({name: self._variable(name) for name in words[1:]}, only)
        elif command == "pull" and len(words) == 2:
            values = self._running_pool().pull(words[1], only)
            one = only is not None and len(only) == 1
            self.shell.user_ns[words[1]] = values[0] if one else values
        else:
            raise UserError(f"%ranks {line.strip()!r} is not known: {_USAGE}.")

    def status(self) -> str:
        """Return what the ranks are, and why, as text."""
        from course_lib.ranks.status import status_text

        if self.pool is None or not self.pool.running:
            return "no ranks are running; %%ranks 4 above a cell starts four"
        return status_text(self.pool.status(), self.pool.method)

    def stop(self) -> None:
        """End the ranks, and the process that they were forked from."""
        if self.pool is not None:
            self.pool.stop()
            self.pool = None
        processes.stop_everything()

    def _pool(self, world_size: int | None) -> Pool:
        """Return the pool, of the size that was asked for."""
        if self.pool is None:
            self.pool = Pool(_DEFAULT_WORLD_SIZE if world_size is None else world_size)
        elif world_size not in (None, self.pool.world_size):
            bigger = Pool(world_size)  # type: ignore[arg-type]  # refuses a wrong number first
            if self.pool.running:
                before = self.pool.world_size
                print(f"{world_size} ranks in place of {before}: they start without variables")
            self.pool.stop()
            self.pool = bigger
        return self.pool

    def _running_pool(self) -> Pool:
        if self.pool is None or not self.pool.running:
            raise UserError("no ranks are running: %%ranks 4 above a cell starts four.")
        return self.pool

    def _variable(self, name: str) -> Any:
        if name not in self.shell.user_ns:
            raise UserError(f"the notebook has no variable {name!r}: set it in a cell first.")
        return self.shell.user_ns[name]


def _parse(line: str, known: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Split a magic's line into words and options (`--only 1` or `--only=1`)."""
    words: list[str] = []
    options: dict[str, str] = {}
    try:
        rest = shlex.split(line, comments=True)
    except ValueError as error:
        raise UserError(f"{line!r} can't be read ({error}): {_USAGE}.") from None
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name not in known or not (equals or rest):
            raise UserError(f"{word!r} is not known here or lacks its value: {_USAGE}.")
        options[name] = value if equals else rest.pop(0)
    return words, options


def _whole_number(word: str, what: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UserError(f"{word!r} is not {what}: {_USAGE}.") from None


def _rank_list(text: str | None) -> list[int] | None:
    if text is None:
        return None
    return [_whole_number(word, "a rank") for word in text.split(",")]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number of seconds: {_USAGE}.") from None


_magic: RanksMagic | None = None


def load(shell: Any) -> None:
    """Register the magics with IPython and start loading torch for the ranks (%load_ext)."""
    global _magic
    processes.warm_up()
    if _magic is None or _magic.shell is not shell:
        _magic = RanksMagic(shell)
    shell.register_magic_function(_magic.cell, magic_kind="cell", magic_name="ranks")
    shell.register_magic_function(_magic.line, magic_kind="line", magic_name="ranks")


def unload(shell: Any) -> None:
    """Stop the ranks (%unload_ext)."""
    if _magic is not None:
        _magic.stop()
