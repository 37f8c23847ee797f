"""Draw TeX formulas as SVG while the deck is built: showing it needs no script, font or network.

MathJax draws them, inside Python (the package quickjax).
"""

from html import escape

from course_lib.errors import UserError

MISSING = "Slides need the package quickjax: pip install 'course-lib[slides]'."


class Formulas:
    """Draws formulas for one deck; their ids count from 1 in each, so that a rebuild is equal."""

    def __init__(self) -> None:
        try:
            from quickjax import MathJaxRenderer
        except ImportError as error:
            raise UserError(MISSING) from error
        self._renderer = MathJaxRenderer()

    def svg(self, tex: str, *, display: bool) -> str:
        """Return the formula as SVG, with its TeX as what a screen reader says.

        Raises:
            UserError: if MathJax does not understand it; the sentence names the formula.
        """
        svg: str = self._renderer.render(tex, display=display)
        if "merror" in svg:
            said = (
                svg.split('data-mjx-error="')[-1].split('"')[0] if "data-mjx-error" in svg else ""
            )
            raise UserError(f"The formula {tex!r} can't be drawn: {said}.")
        return svg.replace("<svg ", f'<svg aria-label="{escape(tex, quote=True)}" ', 1)
