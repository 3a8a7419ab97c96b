"""Figures as drawings inside a page: sharp at any size, and in the colours of the page, light or dark."""

import html
import io
import re
from typing import Any

import numpy as np

from natvi.show.plots import INK, SHADE

# colours of the pictures, and the names under which the page knows them
COLOURS = {INK: "ink", SHADE: "shade", "#000000": "text", "#999999": "line", "#666666": "quiet"}
_MANY = 4000  # points; from there on a picture of pixels is smaller


def figure_of(axes: Any) -> Any:
    """Return the figure that one axis, or an array of axes, belongs to."""
    return np.ravel(axes)[0].figure


def to_svg(axes: Any, alt: str, prefix: str) -> str:
    """Return a figure as an SVG element without fixed colours, fonts or outside references.

    Args:
        axes: One axis or an array of axes of the figure.
        alt: What the picture shows, for those who cannot see it.
        prefix: Put before every id, so that two figures of a page do not share one.
    """
    import matplotlib

    figure = figure_of(axes)
    for axis in figure.axes:
        axis.patch.set_alpha(0.0)
        for line in axis.lines:
            line.set_rasterized(len(np.atleast_1d(line.get_xdata())) > _MANY)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "natvi"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{prefix}", text)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", re.sub(r"font-family: [^;\"]*;?", "", text))
    for colour, name in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    name = html.escape(alt, quote=True)
    head = f'<svg role="img" aria-label="{name}" viewBox="0 0 {72 * width / 96:g} {72 * height / 96:g}"'
    return re.sub(r"<svg[^>]*>", f'{head} style="max-width:{width}px">', text, count=1).strip()
