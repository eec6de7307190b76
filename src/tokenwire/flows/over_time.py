"""What the links do over time: the rate of each flow whenever it changes, and how much of each tier is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, Ways
from tokenwire.fabric.fabric import Floats, Ints
from tokenwire.flows.maxmin import Sharing

if TYPE_CHECKING:
    import polars as pl


def rates(shared: Sharing) -> pl.DataFrame:
    """Return every change of a flow's rate: seconds, flow, rate (bytes/s; 0 where it has ended)."""
    import polars as pl

    return pl.DataFrame({"seconds": shared.times, "flow": shared.whom, "rate": shared.rates})


def spans(shared: Sharing) -> tuple[Ints, Floats, Floats, Floats]:
    """Return the stretches of constant rate above 0: flow, from, to (s), rate (bytes/s)."""
    order = np.argsort(shared.whom, kind="stable")
    flow, time, rate = shared.whom[order], shared.times[order], shared.rates[order]
    last = np.append(flow[1:] != flow[:-1], True) if flow.size else np.zeros(0, dtype=np.bool_)
    until: Floats = np.append(time[1:], 0.0) if flow.size else time
    keep = ~last & (rate > 0)
    return flow[keep], time[keep], until[keep], rate[keep]


def utilisation(ways: Ways, shared: Sharing, bins: int = 24) -> pl.DataFrame:
    """Return how busy each tier's links in use are over time: tier, start, seconds, bytes (carried in it), utilisation (0 to 1).

    ``shared`` must have been recorded. A row a tier and stretch of time; ``utilisation`` is the mean over the links that carry
    anything at all.
    """
    import polars as pl

    if bins < 1:
        raise InputError(f"{bins} stretches of time", rule="must be at least 1", nearest="24")
    fabric = ways.fabric
    end = float(shared.times.max(initial=0.0))
    edges = np.linspace(0.0, end, bins + 1)
    flow, start, until, rate = spans(shared)
    code = fabric.tier if ways.trunks is None else fabric.tier[ways.trunks.first]
    strand = np.repeat(np.arange(ways.size.size), ways.hops)
    use = np.ones(ways.entries.size) if ways.use is None else ways.use
    rows = []
    for tier in range(len(TIERS)):
        here = code[ways.entries] == tier
        if not here.any():
            continue
        times = np.bincount(strand[here], weights=use[here], minlength=ways.size.size)
        capacity = float(ways.rate[np.unique(ways.entries[here])].sum())
        # Bytes up to each edge: the integral of a step function, which is linear between its steps.
        weight = rate * times[flow]
        carried = np.array([float((weight * np.clip(edge - start, 0.0, until - start)).sum()) for edge in edges])
        own, width = np.diff(carried), end / bins
        share = own / (capacity * width) if width > 0 else np.zeros(bins)
        rows += [(TIERS[tier], edges[b], width, own[b], share[b]) for b in range(bins)]
    schema = {"tier": pl.String, "start": pl.Float64, "seconds": pl.Float64, "bytes": pl.Float64, "utilisation": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
