"""The routing of a plan as people read it: where the copies of a token go, rows with their bounds, and the draw."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any

from tokenwire.step.routing.laws import Copies, Volume
from tokenwire.step.routing.planned import WAYS, Routed
from tokenwire.units import format_bytes, format_count

COPIES_HEAD = ("copies of a token", "own GPU", "NVLink", "network", "drawn: NVLink", "network")
"""The head of the first table; the last columns are of the draw."""
ROWS_HEAD = ("rows", "mean", "likely", "any router", "drawn", "max/mean")
"""The head of the second table."""

_SENT = {
    "a_row_an_expert": "one an expert (all_to_all)",
    "a_row_a_rank": "one a rank",
    "a_row_a_node": "one a node, then NVLink",
}


def title(routed: Routed) -> str:
    """Return what is routed where, in a line."""
    router, spread = routed.spread.router, routed.spread
    limit = f", {router.group_topk} of {router.groups} groups" if router.group_topk < router.groups else ""
    node = f"{spread.nodes:,} node" + ("s" if spread.nodes > 1 else "")
    return (f"One dispatch: top-{router.active} of {router.experts} experts{limit}; {spread.ranks:,} ranks on {node}, "
            f"{format_count(routed.tokens)} tokens each")  # fmt: skip


def copies_rows(routed: Routed) -> list[tuple[Any, ...]]:
    """Return a row for each way of sending, mean copies a token by where they go."""
    out: list[tuple[Any, ...]] = []
    for name in WAYS:
        law: Copies = getattr(routed.spread, name)
        seen: Copies = getattr(routed.drawn, name)
        numbers = (law.own, law.nvlink, law.network, seen.nvlink, seen.network)
        out.append((_SENT[name], *(f"{x:.3f}" for x in numbers)))
    return out


def volume_rows(routed: Routed) -> list[tuple[Any, ...]]:
    """Return a row for what a rank gets and for what a pair of ranks carries."""
    drawn = routed.drawn
    return [
        _volume("a rank gets", routed.rank, drawn.received, drawn.imbalance["rank"]),
        _volume("a pair carries", routed.pair, drawn.rows, drawn.imbalance["pair"]),
    ]


def _volume(name: str, volume: Volume, drawn: Any, imbalance: float) -> tuple[Any, ...]:
    return (name, format_count(round(volume.mean)), _range(volume.likely_least, volume.likely_most),
            _range(volume.least, volume.most), _range(drawn.min(), drawn.max()), f"{imbalance:.3f}")  # fmt: skip


def _range(low: float, high: float) -> str:
    return f"{format_count(round(low))}–{format_count(round(high))}"


def remarks(routed: Routed) -> Iterator[str]:
    """Yield the lines below the tables: tokens that stay, bytes, what a benchmark counts, the draw."""
    for sentence in _sentences(routed):
        yield fill(sentence, 80)


def _sentences(routed: Routed) -> Iterator[str]:
    spread, drawn = routed.spread, routed.drawn
    far = spread.farthest
    yield (f"Tokens that never leave the GPU: {far.own:.2%}; that leave it by NVLink only: {far.nvlink:.2%}; "
           f"that cross the network: {far.network:.2%}.")  # fmt: skip
    each, once = routed.sent(spread.a_row_an_expert)["network"], routed.sent(spread.a_row_a_node)["network"]
    yield (f"A rank sends over the network {format_bytes(each)} with a row an expert, {format_bytes(once)} with a row a node "
           f"(rows of {format_bytes(routed.row_bytes)}).")  # fmt: skip
    N = spread.nodes
    if N > 1:
        yield (f"A token reaches {spread.nodes_reached:.3f} nodes, its own counted. A rate that counts them all is above the "
               f"network's: true is (N-1)/N = {N - 1}/{N} of it.")  # fmt: skip
    parts = ", ".join(f"{name} {value:.3f}" for name, value in drawn.imbalance.items())
    yield (f"Drawn with seed {drawn.seed}, skew {drawn.skew:g}: {drawn.nodes_reached:.3f} nodes a token; "
           f"max over mean by {parts}.")  # fmt: skip
    yield "Likely: all of them at once with a probability of 99.9 %, if experts are equally liked and tokens independent."
    if spread.router.group_topk < spread.router.groups:
        yield "Means are for groups chosen at random; the draw chooses them by their best scores, and so uses more nodes."
