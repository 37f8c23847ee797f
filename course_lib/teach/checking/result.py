"""What `check` returns: one line for each property, as plain text and as HTML.

Nothing in it changes from run to run: no times, addresses or ids, so that notebooks compare clean.
"""

from dataclasses import dataclass
from html import escape
from typing import Literal

Status = Literal["passed", "failed", "blank", "unknown"]
Mark = Literal["ok", "wrong", "not tried"]

MARKS = {"ok": "✓", "wrong": "✗", "not tried": "·"}
# White on these is readable (contrast above 5) in light and dark themes, and the words are there
# for eyes that don't tell green from red.
COLOURS = {"ok": "#0b7a55", "wrong": "#b3400a", "not tried": "#6b6b6b"}


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong.

    Args:
        kind: "wrong" (a property doesn't hold), "raised", "forbidden", "timeout", "deadlock",
            "crashed", or "unsendable" (the answer can't be run in a process of its own).
        expected: what a right answer does; may be empty.
        came: what this one did.
        likely: the likely mistake; may be empty.
        where: the case, and the rank where there are several.
        line: "line 3 of your cell: `...`", or empty.
        details: more lines, such as who waits for whom.
    """

    kind: str
    came: str
    expected: str = ""
    likely: str = ""
    where: str = ""
    line: str = ""
    details: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return (label, text) pairs in reading order, empty ones left out."""
        named = [("expected", self.expected), ("came", self.came), ("at", self.line)]
        named += [("where", self.where)]
        named += [("" if i else "ranks", text) for i, text in enumerate(self.details)]
        named += [("likely", self.likely)]
        return [(label, text) for label, text in named if text]


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check.

    Args:
        exercise_id: "08.3".
        title: the exercise's title.
        status: "passed", "failed", "blank" (not attempted yet) or "unknown" (no such exercise).
        lines: (mark, text of the property) in order.
        failure: the first failure, where the status is "failed".
        message: the one sentence of a blank or unknown exercise.
        printed: what the answer printed before it failed, cut short.
    """

    exercise_id: str
    title: str
    status: Status
    lines: tuple[tuple[Mark, str], ...] = ()
    failure: Failure | None = None
    message: str = ""
    printed: str = ""

    @property
    def passed(self) -> bool:
        """True when every property held."""
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    @property
    def headline(self) -> str:
        """The first line: exercise, title and outcome in words."""
        outcome = {
            "passed": "passed",
            "failed": "not right yet",
            "blank": "not attempted yet",
            "unknown": "no such exercise",
        }[self.status]
        return f"{self.exercise_id} {self.title}: {outcome}".replace(" :", ":")

    def __repr__(self) -> str:
        out = [self.headline]
        if self.message:
            out.append(f"  {self.message}")
        for mark, text in self.lines:
            out.append(f"  {MARKS[mark]} {mark:<10} {text}")
            if mark == "wrong":
                out += self._failure_text()
        if self.failure and not any(mark == "wrong" for mark, _ in self.lines):
            out += self._failure_text()
        if self.printed:
            out += [
                "  your answer printed:",
                *(f"    {line}" for line in self.printed.splitlines()),
            ]
        return "\n".join(out)

    def _failure_text(self) -> list[str]:
        assert self.failure is not None
        return [f"    {label:<10} {text}" for label, text in self.failure.rows()]

    def _repr_html_(self) -> str:
        overall: Mark = {"passed": "ok", "failed": "wrong"}.get(self.status, "not tried")  # type: ignore[assignment]
        body = [f"<div style='font-weight:600'>{escape(self.headline)}</div>"]
        if self.message:
            body.append(f"<div>{escape(self.message)}</div>")
        for mark, text in self.lines:
            body.append(_line_html(mark, text))
            if mark == "wrong" and self.failure:
                body.append(_failure_html(self.failure))
        if self.failure and not any(mark == "wrong" for mark, _ in self.lines):
            body.append(_failure_html(self.failure))
        if self.printed:
            style = "margin:0 0 0 1.4em;white-space:pre-wrap"
            printed = escape(self.printed)
            body.append(f"<div>your answer printed:</div><pre style='{style}'>{printed}</pre>")
        style = f"border-left:4px solid {COLOURS[overall]};padding:2px 0 2px 12px;line-height:1.6"
        return f"<div style='{style}'>{''.join(body)}</div>"


def _line_html(mark: Mark, text: str) -> str:
    badge = (
        f"background:{COLOURS[mark]};color:#fff;border-radius:3px;padding:0 6px;"
        "display:inline-block;min-width:5.2em;font-size:85%"
    )
    return f"<div><span style='{badge}'>{MARKS[mark]} {mark}</span> {escape(text)}</div>"


def _failure_html(failure: Failure) -> str:
    label_style = "flex:0 0 5.5em;opacity:.75"
    text_style = "flex:1;white-space:pre-wrap"
    rows = "".join(
        f"<div style='display:flex'><div style='{label_style}'>{label}</div>"
        f"<div style='{text_style}'>{escape(text)}</div></div>"
        for label, text in failure.rows()
    )
    return f"<div style='margin:2px 0 4px 1.4em'>{rows}</div>"
