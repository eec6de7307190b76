"""Charts, as plain figures of plotly.js: their colours follow the page's, their points select, their data are a table."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from tokenwire.report.comparison.chart import COLOURS
from tokenwire.web.parts.tables import Column, titled, whole
from tokenwire.web.view import View

if TYPE_CHECKING:
    import polars as pl

DATA_ROWS = 60
"""Rows of a chart's data that stand below it; the CSV has all."""

_LAYOUT: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "margin": {"l": 56, "r": 12, "t": 12, "b": 44},
    "font": {"size": 13}, "colorway": list(COLOURS), "hoverlabel": {"align": "left"}, "showlegend": False,
    "uniformtext": {"mode": "hide", "minsize": 9},  # what has no room is left out, not shrunk
}  # fmt: skip

SECONDS = {"tickformat": "~s", "ticksuffix": "s"}
BYTES = {"tickformat": "~s", "ticksuffix": "B"}
"""Axes whose ticks have their unit."""
PLACE = 34
"""Letters in a line of a name at an axis."""

CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
          "toImageButtonOptions": {"format": "svg"}, "topojsonURL": "/none/"}  # fmt: skip


def chart(
    view: View, name: str, title: str, traces: Sequence[dict[str, Any]], frame: pl.DataFrame, columns: Sequence[Column], *,
    layout: dict[str, Any] | None = None, height: int = 300, note: str = "", zoomable: bool = False,
    frames: Sequence[dict[str, Any]] = (), opened: bool = False,
) -> html.Section:  # fmt: skip
    """Return a chart of a page. A point whose ``customdata`` is an address goes there when it is clicked."""
    view.tables[name] = frame
    columns = [column for column in columns if column.field in frame.columns]
    figure: dict[str, Any] = {"data": list(traces), "layout": {**_LAYOUT, "height": height, "dragmode": "zoom" if zoomable else False, **(layout or {})}}
    for axis in ("xaxis", "yaxis"):
        # Long names at an axis make their own room.
        given = figure["layout"].get(axis, {})
        figure["layout"][axis] = {"automargin": True, **given, **({"title": {"font": {"size": 13}, **given["title"]}} if "title" in given else {})}
    if frames:
        figure["frames"] = list(frames)
    graph = dcc.Graph(id={"graph": f"{view.page}-{name}"}, figure=figure, config=CONFIG, style={"height": height})
    data = html.Details([
        html.Summary("The data as a table"),
        whole(view, frame.head(DATA_ROWS), columns, None, f"{title}: data"),
        *([html.P(f"The first {DATA_ROWS} of {len(frame):,} rows; the CSV has all.", className="note")] if len(frame) > DATA_ROWS else []),
    ], className="data", open=opened)  # fmt: skip
    drawn = html.Figure([*_legend(traces), graph, html.Figcaption(f"Chart: {title}.", className="unseen")])
    return titled(view, name, title, html.Div([drawn, data]), note)


def ink(colour: str) -> str:
    """Return the colour of letters on a coloured area: white or dark, whichever is easier to read.

    >>> ink("#4269d0"), ink("#3ca951")
    ('#ffffff', '#17202a')
    """
    ground = luminance(colour)
    return "#ffffff" if 1.05 / (ground + 0.05) >= (ground + 0.05) / (luminance("#17202a") + 0.05) else "#17202a"


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb`` (WCAG 2.2), 0 to 1.

    >>> luminance("#ffffff"), luminance("#000000")
    (1.0, 0.0)
    """
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def folded_name(name: str) -> str:
    """Return a name for an axis in lines short enough for a phone.

    >>> folded_name("needs: sent per GPU per step over NVLink")
    'needs: sent per GPU per step over<br>NVLink'
    """
    return "<br>".join(wrap(name, PLACE))


def _legend(traces: Sequence[dict[str, Any]]) -> list[html.Div]:
    # Beside the drawing, so that it makes its own room on a narrow screen.
    named = [(trace["name"], _colour(trace, number)) for number, trace in enumerate(traces) if trace.get("name")]
    if len(named) < 2:
        return []
    return [html.Div([html.Span([html.Span(className="square", style={"background": colour}), name]) for name, colour in named], className="legend")]


def _colour(trace: dict[str, Any], number: int) -> str:
    given = trace.get("marker", {}).get("color")
    return given if isinstance(given, str) else COLOURS[number % len(COLOURS)]
