"""Writing a chart to a file, by the file's ending: ``.html`` by plotly, ``.svg`` by ``svg``.

No ``.png``: plotly draws it through an installed browser, which most machines of a cluster have not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenwire.errors import InputError, MissingExtra
from tokenwire.files import whole_or_nothing
from tokenwire.report.comparison.chart import COLOURS, Chart
from tokenwire.report.comparison.svg import svg

ENDINGS = (".html", ".svg")


def check_ending(path: str) -> str:
    """Return the ending of a plot's file name. Raises ``InputError`` for one that cannot be drawn.

    >>> check_ending("words.SVG")
    '.svg'
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"--plot {path}", rule="a plot is written as .html or .svg (.png would need a browser)",
            nearest=str(Path(path).with_suffix(".svg")) if Path(path).name else "plot.svg",
        )  # fmt: skip
    return ending


def write_plot(chart: Chart, path: str) -> None:
    """Write the chart, whole or not at all. Raises ``InputError`` for another ending, or a folder that is not there."""
    drawn = svg(chart) if check_ending(path) == ".svg" else html(chart)
    with whole_or_nothing(path) as file:
        file.write(drawn.encode())


def html(chart: Chart) -> str:
    """Return a page with the chart, its script inside, so that it opens without a network."""
    return str(figure(chart).to_html(include_plotlyjs=True, full_html=True))


def figure(chart: Chart) -> Any:
    """Return the chart as a figure of plotly. Raises ``MissingExtra`` where plotly is not there."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise MissingExtra("a plot as .html", "plots") from None
    drawn = go.Figure()
    for number, series in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        if chart.kind == "lines":
            drawn.add_scatter(
                x=list(chart.x_values), y=list(series.values), name=series.name, mode="lines+markers",
                line={"color": colour}, text=list(chart.places),
            )  # fmt: skip
        else:
            drawn.add_bar(x=list(chart.places), y=list(series.values), name=series.name, marker_color=colour)
    drawn.update_layout(
        title=chart.title, xaxis_title=chart.x_title, yaxis_title=chart.y_title, template="plotly_white",
        barmode="stack" if chart.kind == "stacked" else "group",
    )  # fmt: skip
    if chart.log_y:
        drawn.update_yaxes(type="log")
    if chart.kind == "lines":
        drawn.update_xaxes(type="log", tickvals=list(chart.x_values), ticktext=list(chart.places))
    return drawn
