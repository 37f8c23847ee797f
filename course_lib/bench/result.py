"""What every bench returns: a part of the course against its peer, measured in turn in one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BenchResult:
    """A comparison.

    name: of the bench.
    speedup: the peer's median time over ours, so above 1 means that ours is faster.
    rows: one dict for each measured case, with the same keys, units in their names.
    notes: sentences on what was compared and how.
    """

    name: str
    speedup: float
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data: the line that --json prints."""
        return {
            "name": self.name,
            "speedup": round(self.speedup, 4),
            "rows": self.rows,
            "notes": self.notes,
        }
