"""What every widget of the course shares: controls above one picture, and a static picture of it.

A picture widget redraws a figure when a control moves. Where widgets don't live (slides, GitHub, an
exported page) its static picture stands in: it is part of the cell's stored output. An error while
drawing is shown beside the picture, since Jupyter would hide it in a log.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from html import escape

import ipywidgets as widgets
from matplotlib import pyplot as plt
from matplotlib.axes import Axes


def png_of(axes: Axes, dots_per_inch: int = 110) -> bytes:
    """Return the figure that holds these axes as PNG bytes, and close it."""
    buffer = io.BytesIO()
    axes.figure.savefig(buffer, format="png", dpi=dots_per_inch, metadata={"Software": None})
    plt.close(axes.figure)
    return buffer.getvalue()


class PictureWidget(widgets.VBox):
    """Controls above a picture that `draw` makes from their values.

    Args:
        draw: called with one keyword per control, returns the Axes to show.
        controls: name -> ipywidgets control; its description is what the reader sees.
        alt: one sentence that says what there is to see, for screen readers and text-only output.
    """

    def __init__(
        self, draw: Callable[..., Axes], controls: Mapping[str, widgets.Widget], alt: str
    ) -> None:
        self._draw = draw
        self._controls = dict(controls)
        self._alt = alt
        self._image = widgets.Image(format="png", layout=widgets.Layout(max_width="100%"))
        self._message = widgets.HTML()
        super().__init__([widgets.HBox(list(controls.values())), self._image, self._message])
        self._static_png = png_of(self._draw(**self._values()))
        self._image.value = self._static_png
        for control in self._controls.values():
            control.observe(self._redraw, names="value")

    def _values(self) -> dict[str, object]:
        return {name: control.value for name, control in self._controls.items()}

    def _redraw(self, _change: object = None) -> None:
        try:
            self._image.value = png_of(self._draw(**self._values()))
            self._message.value = ""
        except Exception as error:  # shown to the reader: Jupyter would hide it in a log
            text = escape(f"{type(error).__name__}: {error}")
            self._message.value = f"<b>This picture could not be drawn.</b> {text}"

    @property
    def static_png(self) -> bytes:
        """The picture at the controls' first values, as PNG bytes."""
        return self._static_png

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, object]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return dict(data) | {"text/plain": self._alt, "image/png": self._static_png}
