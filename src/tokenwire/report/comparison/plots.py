"""Charts as files: ``.html`` by plotly, to look into; ``.svg`` and ``.png`` by ``svg``."""

from __future__ import annotations

from html import escape
from typing import Any

from tokenwire.errors import MissingExtra
from tokenwire.files import whole_or_nothing
from tokenwire.report.comparison.chart import COLOURS, Chart
from tokenwire.report.comparison.svg import DOTS, svg
from tokenwire.report.drawn import check_ending, write_drawings


def write_plot(chart: Chart, path: str, *below: Chart) -> None:
    """Write a chart, and those ``below`` it, whole or not at all. Raises ``InputError`` for another ending, or a folder that is not there."""
    charts = (chart, *below)
    if check_ending(path) != ".html":
        write_drawings(path, chart.title, [(svg(one), "") for one in charts])
        return
    drawn = html(*charts)
    with whole_or_nothing(path) as file:
        file.write(drawn.encode())


def html(*charts: Chart) -> str:
    """Return a page with the charts, their script inside, so that it opens without a network."""
    drawn = [figure(chart).to_html(include_plotlyjs=number == 0, full_html=False, default_height="480px") for number, chart in enumerate(charts)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<title>{escape("; ".join(chart.title for chart in charts))}</title></head>\n<body>{"".join(drawn)}</body></html>\n'
    )


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
                x=list(chart.x_values), y=list(series.values), name=series.name, mode="lines+markers" if len(chart.places) <= DOTS else "lines",
                line={"color": colour}, text=list(chart.places),
            )  # fmt: skip
        else:
            drawn.add_bar(x=list(chart.places), y=list(series.values), name=series.name, marker_color=colour)
    drawn.update_layout(
        title=chart.title, xaxis_title=chart.x_title, yaxis_title=chart.y_title, template="plotly_white",
        barmode="stack" if chart.kind == "stacked" else "group",
    )  # fmt: skip
    drawn.update_yaxes(type="log" if chart.log_y else "linear")
    if chart.kind == "lines":
        named = [(x, place) for x, place in zip(chart.x_values, chart.places, strict=True) if place]
        drawn.update_xaxes(type="log" if chart.log_x else "linear", tickvals=[x for x, _ in named], ticktext=[place for _, place in named])
    return drawn
