"""Turn cells into the HTML of a slide: prose, formulas, coloured code, stored outputs."""

import re
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course_lib.teach.blanks import has_blank, stub_source
from course_lib.teach.chapters import tags
from course_lib.teach.slides.fit import slide_code
from course_lib.teach.slides.maths import Formulas

ANSI = re.compile(r"\x1b\[[0-9;]*m")
DETAILS = re.compile(r"<details[^>]*>\s*<summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
STAGES = re.compile(r"<p>([^<>]*(?:<strong>[^<>]*</strong>)?[^<>]*)</p>")
FORMATTER = HtmlFormatter(nowrap=True, classprefix="py-")


class Renderer:
    """Renders the cells of one deck."""

    def __init__(self) -> None:
        formulas = Formulas()
        self._markdown = (
            MarkdownIt("commonmark", {"html": True, "typographer": False})
            .enable(["table", "strikethrough"])
            .use(
                dollarmath_plugin,
                double_inline=True,
                allow_digits=False,
                renderer=lambda tex, options: formulas.svg(tex, display=options["display_mode"]),
            )
            .use(amsmath_plugin, renderer=lambda tex: formulas.svg(tex, display=True))
        )

    def cell(self, cell: NotebookNode, *, fragment: bool) -> str:
        """Return a cell's HTML; a fragment appears on the speaker's next key."""
        inner = self.markdown(cell.source) if cell.cell_type == "markdown" else self._code(cell)
        classes = f"cell {cell.cell_type}" + (" fragment" if fragment else "")
        return f'<div class="{classes}" data-cell="{escape(cell.id)}">{inner}</div>'

    def markdown(self, text: str) -> str:
        """Return prose as HTML: folded answers become fragments, a row of stages a strip."""
        html = self._markdown.render(text)
        html = DETAILS.sub(
            r'<div class="answer"><p class="question">\1</p><div class="fragment">\2</div></div>',
            html,
        )
        return STAGES.sub(_stage_strip, html)

    def _code(self, cell: NotebookNode) -> str:
        parts = []
        blank = has_blank(cell.source)
        source = stub_source(cell.source) if blank else cell.source
        if "hide-input" not in tags(cell):
            code = highlight(slide_code(source), PythonLexer(), FORMATTER).rstrip("\n")
            parts.append(f'<pre class="code"><code>{code}</code></pre>')
        if not blank:  # what a solution prints would give it away
            parts += [self._output(output, cell) for output in cell.get("outputs", [])]
        return "".join(parts)

    def _output(self, output: NotebookNode, cell: NotebookNode) -> str:
        if output.output_type == "stream":
            return _plain(output.text)
        if output.output_type == "error":
            return _plain(f"{output.ename}: {output.evalue}", "output error")
        data: dict[str, Any] = output.data
        said = str(data.get("text/plain", ""))
        for kind in ("image/png", "image/jpeg"):
            if kind in data:
                alt = said if said and not said.startswith("<") else f"Figure of cell {cell.id}"
                source = f"data:{kind};base64,{''.join(data[kind].split())}"
                return f'<figure><img alt="{escape(alt, quote=True)}" src="{source}"></figure>'
        if "image/svg+xml" in data:
            return f"<figure>{data['image/svg+xml']}</figure>"
        if "text/html" in data:
            return f'<div class="output html">{data["text/html"]}</div>'
        if "text/markdown" in data:
            return f'<div class="output">{self.markdown(data["text/markdown"])}</div>'
        return _plain(said)


def _plain(text: str, classes: str = "output") -> str:
    clean = escape(ANSI.sub("", text).rstrip("\n"))
    return f'<pre class="{classes}">{clean}</pre>' if clean else ""


def _stage_strip(match: re.Match[str]) -> str:
    """Turn a paragraph "data → forward → **loss** → …" into a strip with the bold stage lit."""
    stages = [stage.strip() for stage in match[1].split("→")]
    if len(stages) < 4 or any(len(stage) > 40 for stage in stages):
        return match[0]
    items = []
    for stage in stages:
        here = stage.startswith("<strong>")
        name = re.sub(r"</?strong>", "", stage)
        lit = ' aria-current="step"' if here else ""
        items.append(f'<li class="stage-{escape(name)}{" here" if here else ""}"{lit}>{name}</li>')
    return f'<ol class="stages">{"".join(items)}</ol>'
