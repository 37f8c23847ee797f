"""Slides without a browser: which cells go where, formulas, stubs for solutions, one file."""

import re

import nbformat
import pytest

from course_lib.errors import UserError
from course_lib.paths import CourseFolders
from course_lib.teach.build import build
from course_lib.teach.chapters import load_chapter
from course_lib.teach.slides.deck import sort_into_slides
from course_lib.teach.slides.maths import Formulas
from course_lib.teach.slides.page import script_safe
from course_lib.teach.slides.render import Renderer
from course_lib.teach.slides.write import write_decks
from tests.mini_course import chapter_text


def markdown(text: str, kind: str, **metadata: object) -> nbformat.NotebookNode:
    """Return a markdown cell of a role."""
    return nbformat.v4.new_markdown_cell(
        text, metadata={"slideshow": {"slide_type": kind}, **metadata}
    )


def test_roles_make_columns_slides_fragments_and_notes():
    deck = sort_into_slides(
        [
            markdown("# Title", "slide"),
            markdown("(2 min) say", "notes"),
            markdown("## One", "slide"),
            markdown("left out", "skip"),
            markdown("later", "fragment"),
            markdown("### Below", "subslide"),
            markdown("(1.5 min) say", "notes"),
            markdown("## Never", "slide", tags=["no-slides"]),
        ]
    )
    assert [len(column) for column in deck.columns] == [1, 2]
    assert [fragment for _, fragment in deck.slides[1].cells] == [False, True]
    assert (deck.agenda, deck.minutes) == (["One"], 3.5)


def test_a_fragment_that_does_not_fit_starts_the_next_slide():
    lines = "\n".join(f"x{n} = {n}" for n in range(11))
    code = nbformat.v4.new_code_cell(lines, metadata={"slideshow": {"slide_type": "fragment"}})
    deck = sort_into_slides([markdown("## One", "slide"), code, code])
    assert [len(slide.cells) for slide in deck.slides] == [2, 1]


def test_a_fragment_before_the_first_slide_is_refused():
    with pytest.raises(UserError, match="no slide comes before"):
        sort_into_slides([markdown("x", "fragment")])


def test_formulas_become_pictures_with_their_tex_to_hear():
    tex = r"\begin{aligned} \lVert a \rVert &\xrightarrow{\text{梯度}} b \end{aligned}"
    html = Renderer().markdown(f"$${tex}$$\n\nand $p < 1$ in 梯度, but 5$ and 6$ stay")
    assert html.count("<svg aria-label") == 2
    assert 'aria-label="p &lt; 1"' in html
    assert "5$ and 6$" in html
    with pytest.raises(UserError, match="frac"):
        Formulas().svg(r"\frac{", display=True)


def test_a_folded_answer_is_a_question_with_a_fragment():
    html = Renderer().markdown("<details><summary>Why?</summary>\n\nSo **that**.\n\n</details>")
    assert '<p class="question">Why?</p>' in html
    assert re.search(r'<div class="fragment">\s*<p>So <strong>that</strong>', html)


def test_the_strip_of_stages_lights_the_bold_one():
    html = Renderer().markdown("data → forward → **loss** → backward → sync → update")
    assert html.count("<li") == 6
    assert '<li class="stage-loss here" aria-current="step">loss</li>' in html


def test_a_slide_shows_the_stub_and_not_what_the_solution_prints():
    source = "my_x = 0\n### BEGIN SOLUTION\n### STUB: my_x = ...\nmy_x = 41 + 1\n### END SOLUTION"
    output = nbformat.v4.new_output("stream", name="stdout", text="forty-two")
    cell = nbformat.v4.new_code_cell(source, id="x", outputs=[output])
    text = re.sub("<[^>]+>", "", Renderer().cell(cell, fragment=False))
    assert "..." in text
    assert "41 + 1" not in text
    assert "forty-two" not in text


def test_a_script_cannot_end_its_own_element():
    assert "</script" not in script_safe("a = '<script></script>'; b = '<!-- x'")


def test_decks_are_one_file_without_links_and_equal_when_rebuilt(course: CourseFolders):
    build(course)
    first = write_decks(course)[0].read_text("utf-8")
    assert write_decks(course)[0].read_text("utf-8") == first
    head = re.sub(r"<script>.*?</script>", "", first, flags=re.DOTALL)
    loaded = re.findall(r"(?:src|href)=[\"']?([^\"' >]+)|url\(([^)]+)\)|@import ([^;]+)", head)
    assert loaded
    assert all("".join(found).startswith(("data:", "#")) for found in loaded), loaded
    assert "Say hello" in first
    assert "weight - rate" not in first


def test_slides_of_another_state_of_the_chapter_are_refused(course: CourseFolders):
    with pytest.raises(UserError, match="course build 00"):
        write_decks(course)
    build(course)
    changed = chapter_text().replace("print(mean)", "print(mean + 1)")
    (course.chapters / "00_mini.py").write_text(changed, "utf-8")
    assert load_chapter(course.chapters / "00_mini.py")
    with pytest.raises(UserError, match="course build 00"):
        write_decks(course)


def test_an_instructors_styles_come_last(course: CourseFolders, tmp_path):
    build(course)
    css = tmp_path / "mine.css"
    css.write_text(":root { --accent: #123456 }")
    deck = write_decks(course, extra_css=css)[0].read_text("utf-8")
    assert deck.rindex("--accent: #123456") > deck.rindex("--accent: #0072b2")
    with pytest.raises(UserError, match="style file"):
        write_decks(course, extra_css=tmp_path / "none.css")
