"""Put a deck into one HTML file that opens anywhere: scripts, styles, fonts and pictures inside.

reveal.js and its fonts come from the installed package sphinx-revealjs when the deck is built.
"""

import base64
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup
from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.teach.chapters import Chapter
from course_lib.teach.slides.deck import Deck, Slide, sort_into_slides
from course_lib.teach.slides.render import Renderer

WIDTH, HEIGHT = 1280, 720
FONT_STYLES = {
    "regular": ("normal", 400),
    "italic": ("italic", 400),
    "semibold": ("normal", 600),
    "semibolditalic": ("italic", 600),
}


@dataclass(frozen=True)
class Reveal:
    """The texts of reveal.js that a page carries."""

    styles: str
    script: str
    notes: str


def deck_html(chapter: Chapter, notebook: NotebookNode, extra_css: str = "") -> str:
    """Return the deck of a chapter's executed notebook as one HTML text.

    Args:
        chapter: names the deck.
        notebook: the solved notebook, whose stored outputs the slides show; its cells may include
            the speaker notes.
        extra_css: an instructor's own styles, which come last and so win.

    Raises:
        UserError: if a package that slides need is missing, or a formula can't be drawn.
    """
    deck = sort_into_slides(notebook.cells)
    reveal = read_reveal()
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_own_file("template.html.j2"))
    return template.render(
        title=chapter.title,
        width=WIDTH,
        height=HEIGHT,
        styles=Markup("\n".join([reveal.styles, fonts_css(), _own_file("theme.css"), extra_css])),
        reveal=Markup(script_safe(reveal.script)),
        notes=Markup(script_safe(reveal.notes)),
        columns=_columns(deck),
    )


def _columns(deck: Deck) -> list[list[dict[str, object]]]:
    """Return what the template shows: per column its slides, the agenda after the title."""
    renderer = Renderer()
    columns = []
    running = ""
    for column in deck.columns:
        shown = []
        for slide in column:
            shown.append(_slide(slide, renderer, "" if slide.is_headed else running))
            running = next(iter(slide.headings), running)
        columns.append(shown)
    if columns:
        columns[0][0]["classes"] = "title-slide"
        columns.insert(1, [_agenda(deck, renderer)])
    return columns


def _slide(slide: Slide, renderer: Renderer, running: str) -> dict[str, object]:
    """Return one slide; without a heading of its own it repeats its section's, small."""
    head = f'<div class="running">{renderer.markdown(running)}</div>' if running else ""
    body = head + "".join(renderer.cell(cell, fragment=fragment) for cell, fragment in slide.cells)
    notes = "".join(renderer.markdown(note) for note in slide.notes)
    return {"classes": "", "body": Markup(body), "notes": Markup(notes)}


def _agenda(deck: Deck, renderer: Renderer) -> dict[str, object]:
    items = "".join(f"<li>{renderer.markdown(h)}</li>" for h in deck.agenda)
    half = " two-columns" if len(deck.agenda) > 7 else ""
    body = f'<div class="cell markdown"><h2>Agenda</h2><ol class="agenda{half}">{items}</ol></div>'
    notes = (
        f"<p>(0.5 min) {len(deck.slides)} slides after this one and the title; "
        f"the speaker notes plan {deck.minutes:g} minutes in all.</p>"
    )
    return {"classes": "agenda-slide", "body": Markup(body), "notes": Markup(notes)}


def reveal_folder() -> Path:
    """Return the folder of reveal.js inside the installed package sphinx-revealjs.

    Raises:
        UserError: if it is not installed.
    """
    spec = find_spec("sphinx_revealjs")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("Slides need sphinx-revealjs: pip install 'course-lib[slides]'.")
    return Path(next(iter(spec.submodule_search_locations))) / "_static" / "revealjs"


def read_reveal() -> Reveal:
    """Read reveal.js: its styles, its script and the speaker view."""
    root = reveal_folder()
    styles = "\n".join(
        (root / "dist" / name).read_text("utf-8") for name in ("reset.css", "reveal.css")
    )
    return Reveal(
        styles=styles,
        script=(root / "dist" / "reveal.js").read_text("utf-8"),
        notes=(root / "plugin" / "notes" / "notes.js").read_text("utf-8"),
    )


def fonts_css() -> str:
    """Return the styles that carry the deck's Latin font inside the page."""
    folder = reveal_folder() / "dist" / "theme" / "fonts" / "source-sans-pro"
    faces = []
    for name, (style, weight) in FONT_STYLES.items():
        data = base64.b64encode((folder / f"source-sans-pro-{name}.woff").read_bytes()).decode()
        faces.append(
            f"@font-face{{font-family:'Source Sans Pro';font-style:{style};font-weight:{weight};"
            f"src:url(data:font/woff;base64,{data}) format('woff')}}"
        )
    return "\n".join(faces)


def script_safe(script: str) -> str:
    """Return a script that can't end its own element: the speaker view holds a whole page."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _own_file(name: str) -> str:
    return files("course_lib.teach.slides").joinpath(name).read_text("utf-8")
