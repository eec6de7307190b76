"""Traffic as facts for a program and as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tokenwire.collectives import algorithm
from tokenwire.errors import InputError
from tokenwire.flows.traffic import Traffic
from tokenwire.units import format_bytes, format_memory_rate, format_rate, format_seconds

Table = tuple[str, list[str], list[str], Sequence[tuple[str, ...]]]
"""Title, columns, those aligned right, rows."""


def algorithms(given: Sequence[str] | None) -> dict[str, str]:
    """Return ``["all_reduce=tree"]`` as a mapping. Raises ``InputError`` for an operation or algorithm that is none.

    >>> algorithms(["all_reduce=tree"])
    {'all_reduce': 'tree'}
    """
    out = {}
    for text in given or ():
        op, sign, name = text.partition("=")
        if not sign:
            raise InputError(f"--algorithm {text}"[:80], rule="must be OPERATION=ALGORITHM", nearest="all_reduce=tree")
        out[op] = algorithm(op, name).name
    return out


def table_named(*, links: bool, transfers: bool) -> str:
    """Return which table of ``Traffic`` was asked for. Raises ``InputError`` for both at once."""
    if links and transfers:
        raise InputError("--links and --transfers", rule="are two tables: ask for one", nearest="--links")
    return "links" if links else "transfers" if transfers else "per_rank"


def facts(traffic: Traffic, what: str = "per_rank") -> dict[str, Any]:
    """Return per_rank, per_parallelism, per_tier and totals; with ``what`` links or transfers those too. All in bytes a step."""
    out: dict[str, Any] = {
        "per_rank": traffic.per_rank.to_dicts(), "per_parallelism": traffic.per_parallelism.to_dicts(), "per_tier": traffic.per_tier.to_dicts(), "totals": traffic.totals,
        "notes": list(traffic.fabric.notes),
    }  # fmt: skip
    if what != "per_rank":
        out[what] = getattr(traffic, what).to_dicts()
    return out


def tables(traffic: Traffic, what: str, top: int) -> Iterator[Table]:
    """Yield what is printed: the table asked for, the tiers, the totals."""
    if top < 1:
        raise InputError(f"--top {top}", rule="must be at least 1", nearest="--top 20")
    yield from {"links": _links, "transfers": _transfers, "per_rank": _per_rank}[what](traffic, top)
    if what == "per_rank":
        yield _per_parallelism(traffic)
    yield _tiers(traffic)
    yield _totals(traffic)


def _per_rank(traffic: Traffic, top: int) -> Iterator[Table]:
    rows = [
        (row["rank_class"], f"{row['ranks']:,}", row["op"], row["group"], format_bytes(row["sent_bytes"]),
         format_bytes(row["total_bytes"]))
        for row in traffic.per_rank.iter_rows(named=True)
    ]  # fmt: skip
    columns = ["class", "ranks", "operation", "group", "a rank sends", "all send"]
    yield f"Sent in one step on {traffic.fabric.name}", columns, ["ranks", "a rank sends", "all send"], rows


def _per_parallelism(traffic: Traffic) -> Table:
    rows = [
        (row["rank_class"], row["parallelism"], format_bytes(row["sent_bytes"]), format_bytes(row["received_bytes"]),
         format_bytes(row["network_bytes"]), format_bytes(row["bytes_per_token"]), format_bytes(row["bytes_per_sample"]))
        for row in traffic.per_parallelism.iter_rows(named=True)
    ]  # fmt: skip
    columns = ["class", "for", "a rank sends", "receives", "over network", "a token", "a sample"]
    return "By parallelism (network, token and sample: all ranks of the class)", columns, columns[2:], rows


def _links(traffic: Traffic, top: int) -> Iterator[Table]:
    busy = traffic.links.filter(traffic.links["bytes"] > 0).sort(["seconds", "link"], descending=[True, False])
    rows = [
        (row["src"], row["dst"], row["tier"], format_bytes(row["bytes"]), rate_text(row["tier"], row["rate"]),
         format_seconds(row["seconds"]))
        for row in busy.head(top).iter_rows(named=True)
    ]  # fmt: skip
    title = f"The {len(rows):,} busiest of {busy.height:,} links in use, of {traffic.fabric.links:,}"
    yield title, ["from", "to", "tier", "bytes", "rate", "bytes/rate"], ["bytes", "rate", "bytes/rate"], rows


def rate_text(tier: str, rate: float) -> str:
    """Return a rate as its medium is written: GB/s inside a node, Gb/s on a network."""
    return format_memory_rate(rate) if tier in ("nvlink", "pcie", "torus") else format_rate(rate)


def _transfers(traffic: Traffic, top: int) -> Iterator[Table]:
    table = traffic.transfers.sort(["bytes", "src", "dst"], descending=[True, False, False])
    rows = [
        (f"{row['src']}", f"{row['dst']}", format_bytes(row["bytes"]), row["op"], row["group"], row["parallelism"],
         row["phase"])
        for row in table.head(top).iter_rows(named=True)
    ]  # fmt: skip
    columns = ["from", "to", "bytes", "operation", "group", "for", "phase"]
    yield f"The {len(rows):,} largest of {table.height:,} transfers", columns, ["from", "to", "bytes"], rows


def _tiers(traffic: Traffic) -> Table:
    rows = [
        (row["tier"], f"{row['links']:,}", format_bytes(row["bytes"]), format_bytes(row["crossing_bytes"]),
         row["busiest"] or "none", format_bytes(row["busiest_bytes"]), _times(row["busiest_bytes"], row["mean_bytes"]))
        for row in traffic.per_tier.iter_rows(named=True)
    ]  # fmt: skip
    columns = ["tier", "links", "on links", "crossing", "busiest", "carries", "× mean"]
    return "By tier", columns, ["links", "on links", "crossing", "carries", "× mean"], rows


def _times(most: float, mean: float) -> str:
    return f"{most / mean:.2f}" if mean > 0 else "-"


def _totals(traffic: Traffic) -> Table:
    totals = traffic.totals
    tokens = totals["tokens"]
    rows = [
        ("sent by all GPUs", format_bytes(totals["sent_bytes"]), f"{format_bytes(totals['sent_bytes'] / tokens)} a token"),
        ("received by all GPUs", format_bytes(totals["received_bytes"]), ""),
        ("inside nodes", format_bytes(totals["nvlink_bytes"]), share(totals["nvlink_bytes"], totals["sent_bytes"])),
        ("between nodes", format_bytes(totals["network_bytes"]), f"{format_bytes(totals['network_bytes'] / tokens)} a token"),
        ("on all links", format_bytes(totals["link_bytes"]), "bytes × links on the way"),
    ]  # fmt: skip
    return f"Totals of one step of {tokens:,} tokens on {totals['gpus']:,} GPUs", ["", "bytes", ""], ["bytes"], rows


def share(part: float, whole: float) -> str:
    """Return part of whole in per cent."""
    return f"{part / whole * 100:.1f} %" if whole else "-"


