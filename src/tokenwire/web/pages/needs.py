"""Needs: what the network must offer, each figure with its reason, and sliders for what decides it."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.errors import InputError
from tokenwire.flows.reading import rate_text
from tokenwire.needs.compute import MFU
from tokenwire.report.rooms import needs as room
from tokenwire.web.parts.charts import chart, folded_name
from tokenwire.web.parts.fields import choice, override, row, slider
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import derived, part
from tokenwire.web.view import View
from tokenwire.wire.transports import TRANSPORTS

EXPOSED = 0.1


def _share(text: str, name: str, default: float) -> float:
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} = {text[:20]}", rule="must be a share above 0 and below 1", nearest=f"{name} = {default:g}") from None


def fields(view: View) -> list[Any]:
    """Return the sliders and the network's values."""
    facts, wire = view.journey.config.cluster.facts, view.journey.config.wire
    return [row(
        slider(view, "exposed", "Share of a step that may wait for the network", 0.01, 0.5, 0.01, EXPOSED, ((0.01, "1 %"), (0.25, "25 %"), (0.5, "50 %"))),
        slider(view, "mfu", "Share of a GPU's peak that computing reaches", 0.1, 0.9, 0.01, MFU, ((0.1, "10 %"), (0.5, "50 %"), (0.9, "90 %"))),
        override(view, "cluster.nic_rate", "NIC", rate_text("leaf", facts.nic_rate), width=110), override(view, "cluster.oversubscription", "Oversubscription", facts.oversubscription, width=120),
        choice(view, "set:wire.transport", "Transport", tuple(TRANSPORTS), now=wire.transport, width=150), override(view, "wire.mtu", "MTU, B", wire.mtu, width=90),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of needs."""
    exposed, mfu = _share(view.state.exposed, "exposed", EXPOSED), _share(view.state.mfu, "mfu", MFU)
    told = room.facts(view.journey.needs(exposed=exposed, mfu=mfu))["requirements"]
    return [*fields(view), _rates(view, told), part("The requirements, each with its reason", derived(told)), _table(view, told)]


def _rates(view: View, told: list[dict[str, Any]]) -> Any:
    rates = [one for one in told if one["unit"] == "B/s"]
    if not rates:
        return html.Span()
    has = view.journey.fabric().nic_rate
    names = [*(one["name"] for one in rates), "a NIC has"]
    values = [*(one["value"] for one in rates), has]
    frame = pl.DataFrame({"name": names, "value": values})
    bars = [{"type": "bar", "orientation": "h", "y": [folded_name(name) for name in names], "x": [value * 8 / 1e9 for value in values], "marker": {"color": ["#4269d0"] * len(rates) + ["#868e96"]},
             "hovertemplate": "%{y}: %{x:.3g} Gb/s<extra></extra>"}]  # fmt: skip
    layout = {"yaxis": {"autorange": "reversed", "automargin": True}, "xaxis": {"title": {"text": "Gb/s"}}}
    return chart(view, "rates", "The rates beside what the NIC has", bars, frame, [Column("name", "what"), Column("value", "rate", "B/s")], layout=layout, height=110 + 48 * len(names))


def _table(view: View, told: list[dict[str, Any]]) -> html.Section:
    keys = ("name", "text", "value", "unit", "formula", "values", "because", "source")
    frame = pl.DataFrame([{key: one[key] for key in keys} for one in told], infer_schema_length=None, strict=False)
    columns = [Column("name", "requirement", wide=True), Column("text", "value"), Column("formula", "formula"), Column("because", "reason")]
    return table(view, "requirements", "As a table", frame, columns, height=300)
