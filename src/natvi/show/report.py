"""One self-contained HTML page per fit."""

import base64
import html
import io
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from natvi.run.storage.files import write_text

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h4 { margin: 1.4rem 0 .4rem; }
table { border-collapse: collapse; } th, td { padding: .15rem .8rem .15rem 0; text-align: right; }
tbody th { text-align: left; font-weight: 600; } thead th { color: #5a6b7d; font-weight: 500; }
tbody tr { border-top: 1px solid #e6ebf0; } img { display: block; max-width: 100%; height: auto; margin: 1.2rem 0; }
footer { color: #5a6b7d; margin-top: 2rem; font-size: .85rem; }
"""


@runtime_checkable
class Reportable(Protocol):
    """What a page needs of a result."""

    def _repr_html_(self) -> str: ...

    def pictures(self) -> list[Any]:
        """Return axes, or arrays of axes of one figure."""
        ...


def write_report(result: Reportable, path: Path, title: str = "natvi: fitted model") -> Path:
    """Write the page and return its path."""
    pictures = "".join(_image(axes) for axes in result.pictures())
    body = f"<h1>{html.escape(title)}</h1>{result._repr_html_()}{pictures}<footer>made by natvi</footer>"
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{STYLE}</style>"
    return write_text(path, f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>")


def _image(axes: Any) -> str:
    """Return an image of the figure; those who cannot see it read the titles of its panels."""
    figure = np.ravel(axes)[0].figure
    titles = dict.fromkeys(panel.get_title() for panel in figure.axes)
    name = html.escape(", ".join(filter(None, titles)), quote=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    data = base64.b64encode(buffer.getvalue()).decode()
    # 130 dots per inch on a screen of 96: sharp, and as large as it was drawn
    return f"<img alt='{name}' width='{round(96 * figure.get_figwidth())}' src='data:image/png;base64,{data}'>"
