"""The load on the links: bytes by tier, the busiest link of each, and how long each would take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import bar, table
from tokenwire.units import format_bytes, format_memory_rate, format_rate, format_seconds

if TYPE_CHECKING:
    from tokenwire.journey import Journey

TOP = 8
"""Links drawn."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the load by tier at each scale, and the busiest links."""
    return {"journeys": [_loads(name, journey) for name, journey in walk.journeys]}


def _loads(name: str, journey: Journey) -> dict[str, Any]:
    import polars as pl

    links = journey.traffic().links
    top = (
        links.filter(pl.col("tier") != "nvlink").top_k(TOP, by="seconds").filter(pl.col("bytes") > 0).sort("link")
        if len(links) else links
    )  # fmt: skip
    tiers = journey.traffic().per_tier.to_dicts()
    rates = dict(links.group_by("tier").agg(pl.col("rate").min()).iter_rows())
    for tier in tiers:
        tier["rate"] = float(rates[tier["tier"]])
        tier["busiest_seconds"] = tier["busiest_bytes"] / tier["rate"]
    hops = journey.traffic().totals
    return {
        "name": name, "cluster": journey.config.cluster.preset or "own", "tiers": tiers, "busiest": top.to_dicts(),
        "sent_bytes": hops["sent_bytes"], "link_bytes": hops["link_bytes"],
    }  # fmt: skip


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield a table of tiers for each journey, and the busiest network links of the first."""
    for one in facts["journeys"]:
        most = max((tier["busiest_seconds"] for tier in one["tiers"]), default=0) or 1
        rows = [
            (
                tier["tier"], f"{tier['links']:,}",
                format_memory_rate(tier["rate"]) if tier["tier"] == "nvlink" else format_rate(tier["rate"]),
                format_bytes(tier["bytes"]), tier["busiest"] or "-", format_bytes(tier["busiest_bytes"]),
                format_seconds(tier["busiest_seconds"]), bar(tier["busiest_seconds"] / most, 8),
            )
            for tier in one["tiers"]
        ]  # fmt: skip
        yield table(rows, ["tier", "links", "rate", "bytes", "busiest", "its bytes", "takes", ""],
                    right=["links", "rate", "bytes", "its bytes", "takes"], title=f"{one['name']} on {one['cluster']}")  # fmt: skip
    main = facts["journeys"][0]
    if main["busiest"]:
        most = max(link["bytes"] for link in main["busiest"])
        busiest = [
            (f"{link['src']} → {link['dst']}", link["tier"], format_bytes(link["bytes"]), bar(link["bytes"] / most, 24))
            for link in main["busiest"]
        ]
        yield table(busiest, ["network link", "tier", "bytes", ""], right=["bytes"])
    yield (
        f"Every byte is on each link of its way: {main['sent_bytes']:,} B sent are {main['link_bytes']:,} B on links, "
        f"{main['link_bytes'] / max(main['sent_bytes'], 1):.2f} links a byte."
    )
