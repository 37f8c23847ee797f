"""Sort a chapter's cells into slides by role: slide, subslide, fragment, notes; skip is left out.

A fragment that does not fit on its slide starts the next one. A deck
opens with the chapter's title cell, then an agenda made of its second-level headings.
"""

import re
from dataclasses import dataclass, field

from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.teach.chapters import role, tags
from course_lib.teach.slides.fit import GAP_PX, ROOM_PX, height_px

RUNNING_PX = 46  # the running head of a slide without a heading of its own
NOTE_TIME = re.compile(r"\((\d+(?:\.\d+)?) min\)")


@dataclass
class Slide:
    """One slide: its cells, which of them come as fragments, and what the speaker reads."""

    cells: list[tuple[NotebookNode, bool]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def has_room_for(self, cell: NotebookNode) -> bool:
        """Tell whether the cell fits on this slide too."""
        heights = [height_px(shown) for shown, _ in self.cells] + [height_px(cell)]
        running = 0 if any(headings(shown) for shown, _ in self.cells) else RUNNING_PX
        return sum(heights) + GAP_PX * (len(heights) - 1) + running <= ROOM_PX

    @property
    def minutes(self) -> float:
        """The minutes that its speaker notes plan, written there as (2 min)."""
        return sum(float(t) for note in self.notes for t in NOTE_TIME.findall(note))

    @property
    def headings(self) -> list[str]:
        """The slide's second-level headings."""
        return [h for cell, _ in self.cells for h in headings(cell, "##")]

    @property
    def is_headed(self) -> bool:
        """Whether it opens with a heading of its own."""
        return bool(self.cells and headings(self.cells[0][0]))


@dataclass
class Deck:
    """A deck: columns of slides (reveal.js goes right between columns, down within one)."""

    columns: list[list[Slide]]

    @property
    def slides(self) -> list[Slide]:
        """All slides in order."""
        return [slide for column in self.columns for slide in column]

    @property
    def agenda(self) -> list[str]:
        """The second-level headings that the slides show, in order."""
        return [heading for slide in self.slides for heading in slide.headings]

    @property
    def minutes(self) -> float:
        """The minutes that all speaker notes plan."""
        return sum(slide.minutes for slide in self.slides)


def headings(cell: NotebookNode, level: str = "#{1,3}") -> list[str]:
    """Return the texts of a markdown cell's headings, of any level or of one such as `##`."""
    if cell.cell_type != "markdown":
        return []
    return [match.strip() for match in re.findall(rf"^{level} (.+)$", cell.source, re.MULTILINE)]


def sort_into_slides(cells: list[NotebookNode]) -> Deck:
    """Return the deck of a chapter's cells.

    Raises:
        UserError: if a fragment or a speaker note comes before the first slide.
    """
    columns: list[list[Slide]] = []
    for cell in cells:
        kind = role(cell)
        if kind in (None, "skip") or "no-slides" in tags(cell):
            continue
        if kind == "slide" or (kind == "subslide" and not columns):
            columns.append([Slide([(cell, False)])])
        elif not columns:
            raise UserError(f"Cell {cell.id} has the role {kind} but no slide comes before it.")
        elif kind == "subslide":
            columns[-1].append(Slide([(cell, False)]))
        elif kind == "notes":
            columns[-1][-1].notes.append(cell.source)
        elif columns[-1][-1].has_room_for(cell):
            columns[-1][-1].cells.append((cell, True))
        else:
            columns[-1].append(Slide([(cell, False)]))
    return Deck(columns)
