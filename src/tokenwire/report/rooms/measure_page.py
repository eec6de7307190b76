"""A measurement as one page: the numbers and the plots, no script and no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from tokenwire.measure.compare.bursts import by_group
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.svg import svg
from tokenwire.report.rooms.measure import verdict_lines
from tokenwire.units import format_bytes, unit_of_bytes

if TYPE_CHECKING:
    from tokenwire.measure.compare import Measurement

_STYLE = """body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-size:13px;margin:1rem 0}td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}
figure{margin:1.5rem 0;overflow-x:auto}figcaption{color:#555}"""
_MOST_ROWS = 400


def check_page(path: str) -> None:
    """Raise ``InputError`` for a report that is not asked for as a page, or where it cannot be written."""
    import os
    from pathlib import Path

    from tokenwire.errors import InputError

    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--report {path}", rule="is written as a page", nearest=str(Path(path).with_suffix(".html")))
    folder = Path(path).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"--report {path}", rule=f"cannot be written: {folder} is no folder that can", nearest=Path(path).name)


def write_page(measurement: Measurement, path: str) -> None:
    """Write the page, whole or not at all."""
    from tokenwire.files import whole_or_nothing

    check_page(path)
    with whole_or_nothing(path) as file:
        file.write(page(measurement).encode())


def page(m: Measurement) -> str:
    """Return the page as HTML."""
    verdict = m.verdict()
    title = f"Predicted and measured: {m.said}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{escape(m.network)}; {m.ranks} ranks, {m.steps} steps, compared from step {m.steady} on. "
        f"Prediction: {escape(m.prediction)}.</p>",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in verdict_lines(m, verdict)) + "</ul>",
        *(f"<p>{escape(text)}</p>" for text in m.notes),
        _three_ways(m),
        *(f"<figure>{drawn}<figcaption>{escape(said)}</figcaption></figure>" for drawn, said in pictures(m)),
        "<h2>By pair of ranks and step</h2>",
        _table(m.pairs.columns, m.pairs.head(_MOST_ROWS).rows()),
    ]
    return "\n".join(parts) + "\n"


def pictures(m: Measurement) -> list[tuple[str, str]]:
    """Return the plots of a measurement as SVG, each with what it says."""
    return [(svg(chart), said) for chart, said in _charts(m)]


def _charts(m: Measurement) -> Iterable[tuple[Chart, str]]:
    ranks = m.by_rank()
    names = tuple(f"rank {row['rank']}" for row in ranks)
    seen = [("predicted", "stream_predicted"), ("sockets", "stream_sockets")] + ([("capture", "stream_captured")] if m.captured else [])
    yield (
        _of_bytes("Sent by each rank", "bars", "", "in TCP", names, {said: [float(row[key]) for row in ranks] for said, key in seen}),
        "Bytes of the TCP streams in the compared steps: predicted, counted by the sockets, counted in the capture.",
    )  # fmt: skip
    if m.bursts:
        width, per = m.bursts[0]["width_s"], 3
        starts = range(0, len(m.bursts[0]["bins"]), per)
        when = tuple(f"{at * width * 1e3:.0f}" for at in starts)
        groups = {name: [float(sum(bins[at : at + per])) for at in starts] for name, bins in by_group(m.bursts).items()}
        yield (
            _of_bytes("One step over time", "stacked", "ms from its start", "of frames", when, groups),
            "Frames by group: a pair of ranks counts for the smallest group that has both.",
        )  # fmt: skip
        yield _predicted_order(m)
    yield (
        Chart("Loss", "bars", "step", "nats a token", tuple(str(k + 1) for k in range(len(m.losses))), (Series("loss", m.losses),),
              log_y=False),
        "Mean loss of each step over the ranks that see it.",
    )  # fmt: skip


def _three_ways(m: Measurement) -> str:
    if not m.three_ways:
        return ""
    columns = list(m.three_ways[0])
    return "<h2>All that each rank sent, counted three ways</h2>" + _table(columns, [[row[c] for c in columns] for row in m.three_ways])


def _of_bytes(
    title: str, kind: Literal["bars", "stacked"], x_title: str, of: str, places: tuple[str, ...], sizes: dict[str, list[float]]
) -> Chart:  # fmt: skip
    """Return a chart of bytes in the unit that fits them."""
    columns = list(zip(*sizes.values(), strict=True))
    scale, unit = unit_of_bytes(max((sum(one) if kind == "stacked" else max(one) for one in columns), default=0.0))
    series = tuple(Series(name, tuple(value / scale for value in values)) for name, values in sizes.items())
    return Chart(title, kind, x_title, f"{unit} {of}", places, series, log_y=False)


def _predicted_order(m: Measurement) -> tuple[Chart, str]:
    phases = tuple(dict.fromkeys(row["phase"] for row in m.phases))
    size = {(row["phase"], row["group"]): float(row["payload_bytes"]) for row in m.phases}
    groups = dict.fromkeys(row["group"] for row in m.phases)
    sizes = {group: [size.get((phase, group), 0.0) for phase in phases] for group in groups}
    order = "; ".join(f"{row['phase']} over {row['group']}: {format_bytes(row['payload_bytes'])}" for row in m.phases)
    return (
        _of_bytes("The same step as predicted, phase after phase", "stacked", "phase", "of payload", phases, sizes),
        f"Payload of all ranks by phase and group, in the order of the step table: {order}.",
    )  # fmt: skip


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{'' if cell is None else format(cell, ',')}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
