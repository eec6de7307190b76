"""One call of a step, or one of one's own, carried out round by round: who sends what to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.collectives import OPERATIONS, algorithm, algorithms, cost, edges, transfers
from tokenwire.collectives.algorithm import check
from tokenwire.collectives.busbw import algbw
from tokenwire.errors import InputError
from tokenwire.units import parse_bytes

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey

DRAWN = 16
"""Ranks of the largest group whose rounds are drawn: larger ones are drawn as if they had so many."""
MOST_TRANSFERS = 20_000
"""Transfers up to which all of them are listed."""


@dataclass(frozen=True)
class Call:
    """An operation among ``n`` ranks with ``bytes`` of the full tensor; ``members`` are the ranks of a group, if it is a step's.

    ``row`` is its row of the step; ``network`` says whether its group leaves a node, ``rate`` is what a rank has there (bytes/s)
    and ``latency`` that of a link (s).
    """

    op: str
    n: int
    bytes: int
    members: tuple[int, ...]
    row: int | None
    group: str
    network: bool
    rate: float
    latency: float


def call_of_step(journey: Journey, row: int | None, rank: int = 0) -> Call:
    """Return the call of a row of the step (None: the largest), for the group of ``rank`` or the first of the row's stage.

    Raises ``InputError`` for a row that is not there, or a step that says nothing.
    """
    import polars as pl

    plan, rows = journey.plan(), journey.step().with_row_index("row")
    if rows.is_empty():
        raise InputError("a call", rule="nothing is said in this step: every group of this plan has one rank", nearest="a call of one's own")
    if row is None:
        row = int(rows.sort(pl.col("bytes") * pl.col("count"), descending=True)["row"][0])
    if row >= len(rows):
        raise InputError(f"op {row}", rule=f"the step has rows 0 to {len(rows) - 1}", nearest=str(len(rows) - 1))
    said = rows.row(row, named=True)
    per_stage = plan.world // plan.pp
    first = rank if plan.stage_of(rank) == said["stage"] else said["stage"] * per_stage
    members: tuple[int, ...]
    if said["op"] in ("send", "recv"):
        other = first + (int(said["peer"]) - int(said["stage"])) * per_stage
        members = (first, other) if said["op"] == "send" else (other, first)
    else:
        members = tuple(int(one) for one in plan.members(said["group"], first))
    return _call(journey, said["op"], len(members), int(said["bytes"]), members, row, said["group"])


def own_call(journey: Journey, op: str, ranks: str, size: str) -> Call:
    """Return a call of one's own among the first ranks of the cluster. Raises ``InputError`` for what it cannot be."""
    algorithms(op)
    if not (ranks.strip().isascii() and ranks.strip().isdigit()) or len(ranks.strip()) > 9:
        raise InputError(f"ranks {ranks[:20]!r}", rule="must be a whole number", nearest="8")
    n, size_bytes = int(ranks), parse_bytes(size)
    check(op, n, size_bytes)
    if op in ("send", "recv") and n != 2:
        raise InputError(f"{n} ranks", rule=f"a {op} is between 2 ranks", nearest="2")
    return _call(journey, op, n, size_bytes, tuple(range(min(n, journey.plan().world))), None, "")


def _call(journey: Journey, op: str, n: int, size: int, members: tuple[int, ...], row: int | None, group: str) -> Call:
    facts = journey.config.cluster.facts
    network = any(member // facts.gpus_per_node != members[0] // facts.gpus_per_node for member in members) or n > len(members)
    rate, latency = (facts.nic_rate, facts.link_latency) if network else (facts.domain_rate, facts.domain_latency)
    return Call(op, n, size, members, row, group, network, rate, latency)


def costs(call: Call) -> pl.DataFrame:
    """Return what each algorithm takes for a call, the fastest first: algorithm, seconds, steps, sent_bytes, busbw, derivation, source.

    On a switch whose links have the call's rate and latency; algorithms that the number of ranks does not allow are left out.
    """
    import polars as pl

    rows = []
    for name in algorithms(call.op):
        try:
            found = cost(call.op, name, call.n, call.bytes, rate=call.rate, latency=call.latency, topology="switch")
        except InputError:
            continue
        rows.append({"algorithm": name, "seconds": found.seconds, "steps": found.steps, "sent_bytes": found.sent_bytes, "busbw": found.busbw,
                     "algbw": algbw(call.bytes, found.seconds), "derivation": found.derivation.derivation, "source": found.derivation.source})  # fmt: skip
    schema = {"algorithm": pl.String, "seconds": pl.Float64, "steps": pl.Int64, "sent_bytes": pl.Float64, "busbw": pl.Float64, "algbw": pl.Float64,
              "derivation": pl.String, "source": pl.String}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, strict=False).sort("seconds", maintain_order=True)


def rounds(call: Call, name: str | None) -> tuple[int, pl.DataFrame]:
    """Return among how many ranks the rounds are drawn, and their transfers: step, src, dst, offset, bytes, chunk, adds.

    Raises ``InputError`` for an algorithm that there is not for the operation.
    """
    import polars as pl

    entry = algorithm(call.op, name)
    n = call.n if call.n <= DRAWN else DRAWN
    table = transfers(call.op, entry.name, n, call.bytes)
    return n, pl.DataFrame({column: table[column] for column in ("step", "src", "dst", "offset", "bytes", "chunk", "adds")})


def pairs(call: Call, name: str | None) -> pl.DataFrame | None:
    """Return the bytes of each pair in the whole call, by members and ranks; None where there are too many pairs."""
    import polars as pl

    if algorithm(call.op, name).count(call.n) > MOST_TRANSFERS * 16:
        return None
    found = edges(call.op, name, call.n, call.bytes)
    frame = pl.DataFrame({"src": found.src, "dst": found.dst, "bytes": found.bytes}).filter(pl.col("bytes") > 0)
    ranks: dict[str, Any] = {}
    for end in ("src", "dst"):
        known = [call.members[i] if i < len(call.members) else None for i in frame[end].to_list()]
        ranks[f"{end}_rank"] = pl.Series(known, dtype=pl.Int64)
    return frame.with_columns(**ranks)


def operations() -> tuple[str, ...]:
    """Return the operations that a call of one's own can be."""
    return tuple(OPERATIONS)
