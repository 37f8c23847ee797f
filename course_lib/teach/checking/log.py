"""The log of one rank's check: what began, what ended, what failed; it outlives the rank."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Log:
    """Steps of a check, in memory and, where a path is given, line by line in a file.

    Args:
        path: a file that only this rank writes, or None.
        passed: indices of the properties that held.
        current: index of the property under way, or None.
        current_case: the label of its case.
        failure: the fields of the first failure, or None.
        failed: index of the property that failed; -1 where the answer could not be loaded.
        stuck_at: kind ("deadlock" or "timeout") and line of a rank that had to be ended.
    """

    path: Path | None = None
    passed: list[int] = field(default_factory=list)
    current: int | None = None
    current_case: str = ""
    failed: int | None = None
    failure: dict[str, Any] | None = None
    stuck_at: dict[str, Any] | None = None

    def start(self, index: int) -> None:
        """Property `index` begins."""
        self._write({"start": index})

    def case(self, label: str) -> None:
        """Its case `label` begins."""
        self._write({"case": label})

    def held(self, index: int) -> None:
        """Property `index` holds, on all its cases."""
        self._write({"held": index})

    def failed_with(self, index: int, failure: dict[str, Any]) -> None:
        """Property `index` doesn't hold; -1 where the answer could not even be loaded."""
        self._write({"failed": index, "failure": failure})

    def stuck(self, kind: str, line: tuple[str, int] | None) -> None:
        """This rank can't go on; `line` is where, None when its own part has ended."""
        self._write({"stuck": {"kind": kind, "line": line}})

    def _write(self, event: dict[str, Any]) -> None:
        self._apply(event)
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")

    def _apply(self, event: dict[str, Any]) -> None:
        if "start" in event:
            self.current, self.current_case = event["start"], ""
        elif "case" in event:
            self.current_case = event["case"]
        elif "stuck" in event:
            self.stuck_at = event["stuck"]
        elif "held" in event:
            self.passed.append(event["held"])
            self.current = None
        else:
            self.failed, self.failure, self.current = event["failed"], event["failure"], None

    @classmethod
    def read(cls, path: Path) -> "Log":
        """Return the log that a rank left in `path`; a line cut short by a kill is left out."""
        log = cls()
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    log._apply(json.loads(line))
                except ValueError:
                    break
        return log
