"""Every chapter's deck in a real browser without a network: nothing remote, nothing cut off."""

import os
import re
from pathlib import Path

import pytest

from course_lib.paths import CourseFolders, course_folders
from course_lib.teach.build import build
from course_lib.teach.chapters import chapter_paths
from course_lib.teach.slides.page import HEIGHT, WIDTH
from course_lib.teach.slides.pdf import print_deck
from course_lib.teach.slides.write import write_decks
from tests.browser.decks import Measured, has_browser, offline_page, visit
from tests.mini_course import chapter_text

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not has_browser() and not os.environ.get("CI"), reason="there is no Chromium to open"
    ),
]
FOLDERS = course_folders()
CHAPTERS = [path.stem[:2] for path in chapter_paths(FOLDERS.chapters)]


def overflowing(slides: list[Measured]) -> list[str]:
    """Return the slides that reach over the edge, or hide a part of themselves."""
    return [
        f"{slide.title!r} to {slide.right:.0f}, {slide.bottom:.0f}: {slide.worst!r} {slide.clipped}"
        for slide in slides
        if slide.bottom > HEIGHT + 0.5 or slide.right > WIDTH + 0.5 or slide.clipped
    ]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", CHAPTERS)
def test_a_chapters_deck_is_whole_offline_and_prints_one_page_a_slide(number: str, tmp_path: Path):
    deck = write_decks(FOLDERS, [number], out=tmp_path)[0]
    seen = visit(deck)
    assert seen.problems == []
    assert len(seen.slides) >= 10
    assert overflowing(seen.slides) == []
    pdf = tmp_path / "deck.pdf"
    print_deck(deck, pdf)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) == len(seen.slides)


@pytest.fixture
def mini_deck(course: CourseFolders) -> Path:
    """The deck of the mini chapter."""
    build(course)
    return write_decks(course)[0]


def test_an_answer_appears_only_on_the_speakers_next_key(mini_deck: Path):
    with offline_page() as (page, problems):
        page.goto(mini_deck.as_uri() + "#/3")
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        page.evaluate("Reveal.slide(2, 0)")
        answer = page.locator(".answer .fragment")
        assert page.locator(".present .present h2").first.inner_text() == "Averages"
        assert float(answer.evaluate("e => getComputedStyle(e).opacity")) == 0
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(100)
        assert float(answer.evaluate("e => getComputedStyle(e).opacity")) == 1
        assert page.locator(".math svg").count() == 2
        assert problems == []


def test_the_measure_sees_what_runs_over_and_the_page_what_is_remote(
    course: CourseFolders, mini_deck: Path
):
    good = visit(mini_deck)
    assert overflowing(good.slides) == []
    assert good.problems == []
    text = chapter_text().replace("print(mean)", "for n in range(40):\n    print(n)")
    (course.chapters / "00_mini.py").write_text(text, "utf-8")
    build(course)
    long = write_decks(course)[0]
    assert len(overflowing(visit(long).slides)) == 1
    page, end = long.read_text("utf-8").rsplit("</body>", 1)
    remote = '<img src="http://127.0.0.1:9/x.png">'
    long.write_text(f"{page}{remote}</body>{end}", "utf-8")
    assert any("remote http://127.0.0.1:9/x.png" in problem for problem in visit(long).problems)
