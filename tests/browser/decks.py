"""Open decks and notebooks in Chromium: cut off the network, every slide measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, Request, sync_playwright

from course_lib.errors import UserError
from course_lib.teach.slides.pdf import find_browser

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOCAL = ("file:", "data:", "blob:", "about:")
MEASURE = """() => {
  const sheet = Reveal.getCurrentSlide().querySelector('.sheet');
  const scale = Reveal.getScale();
  const frame = document.querySelector('.reveal .slides').getBoundingClientRect();
  let bottom = 0, right = 0, worst = '', clipped = [];
  for (const element of sheet.querySelectorAll('*')) {
    const style = getComputedStyle(element);
    if (style.display === 'none' || style.visibility === 'hidden') continue;
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const b = (box.bottom - frame.top) / scale;
    const r = (box.right - frame.left) / scale;
    if (b > bottom) {
      bottom = b;
      worst = element.tagName + ' ' + element.textContent.slice(0, 40);
    }
    if (r > right) right = r;
    if (element.tagName === 'IMG' && box.height / scale < 160) clipped.push('a picture too small');
    if (style.overflowX !== 'visible' && element.scrollWidth > element.clientWidth + 2)
      clipped.push(element.tagName);
  }
  return {bottom, right, worst, clipped, words: sheet.innerText.length,
          notes: (Reveal.getSlideNotes() || '').trim().length,
          title: (sheet.innerText || '').trim().slice(0, 40)};
}"""


@dataclass
class Measured:
    """One slide as the browser lays it out, in the deck's own pixels."""

    title: str
    bottom: float
    right: float
    worst: str
    clipped: list[str]
    notes: int
    words: int


@dataclass
class Visit:
    """What a browser met in a deck."""

    slides: list[Measured]
    problems: list[str]


@contextmanager
def offline_page(width: int = 1280, height: int = 720) -> Iterator[tuple[Page, list[str]]]:
    """Open a page of a browser that is cut off the network; collect every problem it meets."""
    with _page(LOCAL, offline=True, width=width, height=height) as opened:
        yield opened


@contextmanager
def online_page(server: str) -> Iterator[tuple[Page, list[str]]]:
    """Open a page that may talk to one server of this machine; all else is a problem."""
    local = (*LOCAL, server, server.replace("http:", "ws:"))
    with _page(local, offline=False, width=1400, height=900) as opened:
        yield opened


@contextmanager
def _page(
    local: tuple[str, ...], *, offline: bool, width: int, height: int
) -> Iterator[tuple[Page, list[str]]]:
    problems: list[str] = []

    def look_at(request: Request) -> None:
        if not request.url.startswith(local):
            problems.append(f"remote {request.url[:100]}")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=CHROMIUM_ARGUMENTS
        )
        context = browser.new_context(viewport={"width": width, "height": height}, offline=offline)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"error {str(error)[:200]}"))
        page.on("request", look_at)
        try:
            yield page, problems
        finally:
            browser.close()


def visit(deck: Path, pictures: Path | None = None) -> Visit:
    """Show every slide of a deck with all its fragments, and measure it."""
    measured = []
    with offline_page() as (page, problems):
        page.goto(deck.resolve().as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        page.evaluate("document.fonts.ready.then(() => 1)")
        for index in page.evaluate("Reveal.getSlides().map(s => Reveal.getIndices(s))"):
            page.evaluate("i => Reveal.slide(i.h, i.v || 0)", index)
            page.evaluate(
                "() => { for (let n = 0; n < 50 && Reveal.availableFragments().next; n++)"
                " Reveal.nextFragment() }"
            )
            page.wait_for_timeout(60)
            measured.append(Measured(**page.evaluate(MEASURE)))
            if pictures is not None:
                page.screenshot(path=str(pictures / f"slide_{len(measured):02d}.png"))
    return Visit(measured, problems)


def has_browser() -> bool:
    """Tell whether there is a Chromium to open."""
    try:
        find_browser()
    except UserError:
        return False
    return True
