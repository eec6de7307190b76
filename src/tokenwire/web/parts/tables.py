"""Tables: small ones whole, large ones in a grid; each with a link to all of it as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import html

from tokenwire.report.terminal import shortened, visible
from tokenwire.units import format_bytes, format_rate, format_seconds
from tokenwire.web.view import View

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS = 1_000
"""Rows of a grid that are sent to the browser; the CSV has all of them."""
SMALL = 12
"""Rows up to which a table is drawn whole."""


@dataclass(frozen=True)
class Column:
    """A column of a table: ``field`` of the frame, its ``head``, the ``unit`` that it is printed in.

    Units are ``B``, ``B/s``, ``s``, ``1`` (a number), ``short`` (a number with k, M, G) or "" (words). ``select`` names what a click on its value selects, on
    page ``page`` ("": this one). ``wide`` columns take what room is left.
    """

    field: str
    head: str
    unit: str = ""
    select: str = ""
    page: str = ""
    wide: bool = False


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _short(value: float) -> str:
    return format_bytes(value).removesuffix("B").strip()


_PRINTED: dict[str, Callable[[float], str]] = {"B": format_bytes, "B/s": format_rate, "s": format_seconds, "1": _plain, "short": _short}


def printed(value: Any, unit: str) -> str:
    """Return a value as people read it.

    >>> printed(1500, "B"), printed(None, "s"), printed(1234, "1")
    ('1.50 kB', '', '1,234')
    """
    if value is None:
        return ""
    return _PRINTED[unit](value) if unit else shortened(visible(str(value)).replace("␣", " "), 200)


def csv_link(view: View, name: str, said: str) -> html.A:
    """Return the link that gives a table of the page as CSV."""
    return html.A("CSV", href=f"/csv/{view.page}/{name}{view.state.query}", className="csv", download=f"{view.page}-{name}.csv",
                  title=f"All rows of {said} as CSV", **{"aria-label": f"CSV: {said}"})  # fmt: skip


def titled(view: View, name: str, title: str, below: Any, note: str = "") -> html.Section:
    """Return a part of a page with its title and the link to its data."""
    head = html.Div([html.H2(title), csv_link(view, name, title)], className="part-head")
    return html.Section([head, *([html.P(note, className="note")] if note else []), below], className="part")


def table(
    view: View, name: str, title: str, frame: pl.DataFrame, columns: Sequence[Column], *, note: str = "", chosen: Any = None,
    height: int = 360,
) -> html.Section:  # fmt: skip
    """Return a table of a page. ``chosen`` is the value of the selecting column whose row is marked."""
    view.tables[name] = frame
    known = [column for column in columns if column.field in frame.columns]
    if frame.is_empty():
        return titled(view, name, title, html.P(note or "There is none.", className="said"))
    if len(frame) <= SMALL:
        return titled(view, name, title, whole(view, frame, known, chosen, title), note)
    more = f"The first {MOST_ROWS:,} of {len(frame):,} rows; the CSV has all." if len(frame) > MOST_ROWS else ""
    return titled(view, name, title, _grid(view, name, frame.head(MOST_ROWS), known, chosen, height, title),
                  " ".join(part for part in (note, more) if part))  # fmt: skip


def whole(view: View, frame: pl.DataFrame, columns: Sequence[Column], chosen: Any, title: str) -> dmc.TableScrollContainer:
    """Return a small table, every row of it."""
    head = html.Tr([html.Th(c.head, className="number" if c.unit else "", scope="col") for c in columns])
    rows = [html.Tr([_cell(view, c, row) for c in columns], className="chosen" if _is(chosen, columns, row) else "")
            for row in frame.iter_rows(named=True)]  # fmt: skip
    # A region that scrolls must be reachable by keyboard.
    return html.Div(html.Table([html.Thead(head), html.Tbody(rows)], className="whole"), className="scroll", tabIndex=0,
                    role="region", **{"aria-label": title})  # fmt: skip


def _is(chosen: Any, columns: Sequence[Column], row: dict[str, Any]) -> bool:
    return chosen is not None and any(column.select and row[column.field] == chosen for column in columns)


def _cell(view: View, column: Column, row: dict[str, Any]) -> html.Td:
    value = row[column.field]
    text = printed(value, column.unit)
    shown: Any = text
    if column.select and value is not None:
        shown = html.A(text, href=view.state.href(column.page or view.page, **{column.select: value}))
    return html.Td(shown, className="number" if column.unit else "")


def _grid(
    view: View, name: str, frame: pl.DataFrame, columns: Sequence[Column], chosen: Any, height: int, title: str
) -> dag.AgGrid:
    rows, many = list(_rows(frame, columns, chosen)), len(columns) > 5
    return html.Div(dag.AgGrid(
        id={"grid": f"{view.page}-{name}"}, rowData=rows, columnDefs=[_definition(view, column) for column in columns],
        defaultColDef={"sortable": True, "resizable": True, "filter": len(frame) > 40, "suppressHeaderMenuButton": True, "minWidth": 64 if many else 110},
        columnSize="autoSize" if many else "responsiveSizeToFit", style={"height": height, "width": "100%"},
        dashGridOptions={"rowHeight": 30, "headerHeight": 34, "ensureDomOrder": True, "animateRows": False,
                         "enableCellTextSelection": True, "suppressMovableColumns": True, "rowBuffer": 4,
                         "rowClassRules": {"chosen": "params.data['chosen·']"}},
    ), role="region", **{"aria-label": title})  # fmt: skip


def _rows(frame: pl.DataFrame, columns: Sequence[Column], chosen: Any) -> Iterator[dict[str, Any]]:
    for row in frame.iter_rows(named=True):
        # The text of a number stands beside it: numbers are sorted, texts are shown.
        out = {column.field: row[column.field] for column in columns}
        out |= {f"{column.field}·": printed(row[column.field], column.unit) for column in columns}
        yield out | {"chosen·": _is(chosen, columns, row)}


def _definition(view: View, column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {"field": column.field, "headerName": column.head, "valueFormatter": {"function": "shownText(params)"}}
    if column.unit:
        out |= {"type": "rightAligned", "filter": False}
    if column.wide:
        out["flex"] = 1
        out["minWidth"] = 180
    if column.select:
        base = view.state.href(column.page or view.page, **{column.select: None if column.select != "tensor" else ""})
        mark = "&" if "?" in base else "?"
        out |= {"cellRenderer": "Selecting", "cellRendererParams": {"base": f"{base}{mark}{column.select}="}}
    return out
