"""One collective as people ask for it: quantities with units in, facts with names out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.collectives.algorithm import algorithm, algorithms, check, transfers
from tokenwire.collectives.busbw import algbw
from tokenwire.collectives.cost import Cost, cost
from tokenwire.collectives.topology import ports, topology_named
from tokenwire.errors import InputError
from tokenwire.units import (
    format_bytes,
    format_count,
    format_memory_rate,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_rate,
    parse_seconds,
)

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("step", "src", "dst", "offset", "bytes", "chunk", "to", "adds")
SHOWN = 40
"""Transfers that are printed; all of them go to a file."""
_WRITTEN = 1 << 16  # transfers that go into JSON


@dataclass(frozen=True)
class Asked:
    """A collective on ``n`` ranks with links of ``rate`` bytes/s and ``latency`` s, in ``chunks`` pieces."""

    op: str
    algorithm: str
    n: int
    size_bytes: int
    topology: str
    rate: float
    latency: float
    chunks: int


def read(
    op: str, algorithm_name: str | None, ranks: int, size: str, topology: str, link: str, latency: str, chunks: int
) -> Asked:
    """Return what was asked for, every part of it checked. Raises ``InputError`` naming the option."""
    entry = algorithm(op, algorithm_name)
    size_bytes = _read(size, parse_bytes, "--bytes")
    check(op, ranks, size_bytes)
    asked = Asked(op, entry.name, ranks, size_bytes, topology_named(topology), _read(link, parse_rate, "--link"),
                  _read(latency, parse_seconds, "--latency"), chunks)  # fmt: skip
    if op in ("send", "recv") and ranks != 2:
        raise InputError(f"--ranks {ranks}", rule=f"a {op} is between 2 ranks", nearest="--ranks 2")
    return asked


def _read(text: str, parse: Any, option: str) -> Any:
    try:
        return parse(text)
    except InputError as error:
        raise InputError(error.what, where=option, rule=error.rule, nearest=error.nearest) from None


def costs(asked: Asked) -> Cost:
    """Return the cost of what was asked for."""
    return cost(
        asked.op, asked.algorithm, asked.n, asked.size_bytes, rate=asked.rate, latency=asked.latency,
        chunks=asked.chunks, topology=asked.topology,
    )  # fmt: skip


def facts(asked: Asked, *, with_transfers: bool = False) -> dict[str, Any]:
    """Return the time, bytes and bandwidths by name (seconds, B, B/s), and how they came about.

    >>> facts(read("all_reduce", None, 4, "400 B", "ring", "100 B/s", "0 s", 1))["seconds"]
    6.0
    """
    found = costs(asked)
    out: dict[str, Any] = {
        "name": found.derivation.name,
        "op": asked.op,
        "algorithm": asked.algorithm,
        "topology": asked.topology,
        "ranks": asked.n,
        "bytes": asked.size_bytes,
        "chunks": asked.chunks,
        "link_bytes_per_s": asked.rate,
        "links_per_rank": ports(asked.topology, asked.n),
        "latency_seconds": asked.latency,
        "steps": found.steps,
        "seconds": found.seconds,
        "bound_seconds": found.bound_seconds,
        "in_network": found.in_network,
        "sent_bytes_per_rank": found.sent_bytes,
        "algbw_bytes_per_s": algbw(asked.size_bytes, found.seconds),
        "busbw_bytes_per_s": found.busbw,
        "derivation": found.derivation.derivation,
        "because": found.derivation.because,
        "source": found.derivation.source,
        "algorithms": list(algorithms(asked.op)),
    }
    if with_transfers:
        if algorithm(asked.op, asked.algorithm).count(asked.n) > _WRITTEN:
            raise InputError(f"--transfers of {asked.op} among {asked.n:,} ranks",
                             rule=f"are more than {_WRITTEN:,}", nearest="--csv FILE, or fewer --ranks")  # fmt: skip
        out["transfers"] = transfer_frame(asked).to_dicts()
    return out


def transfer_frame(asked: Asked) -> pl.DataFrame:
    """Return the transfers as a frame with the columns of ``tables.TRANSFER``."""
    import polars as pl

    table = transfers(asked.op, asked.algorithm, asked.n, asked.size_bytes)
    return pl.DataFrame({name: table[name] for name in COLUMNS})


def rows(facts: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the facts as lines of a table (what, value), and which columns are aligned right."""
    ports_text = f" on each of {facts['links_per_rank']} links" if facts["links_per_rank"] > 1 else ""
    beyond = "; switches add or copy: each rank sends S once" if facts["in_network"] and facts["op"] == "all_reduce" else ""
    out = [
        ("size of the full tensor", f"{format_bytes(facts['bytes'], binary=True)} ({format_count(facts['bytes'])} B)"),
        ("time", format_seconds(facts["seconds"])),
        ("  never below", format_seconds(facts["bound_seconds"]) + beyond),
        ("sent by a rank", f"{format_bytes(facts['sent_bytes_per_rank'])} ({format_count(facts['sent_bytes_per_rank'])} B)"),
        ("steps", f"{facts['steps']:,}, each in {facts['chunks']:,} pieces"),
        ("algbw = S/t", format_memory_rate(facts["algbw_bytes_per_s"])),
        ("busbw, as nccl-tests", format_memory_rate(facts["busbw_bytes_per_s"])),
        ("link", f"{format_memory_rate(facts['link_bytes_per_s'])} = {format_rate(facts['link_bytes_per_s'])}{ports_text}"),
    ]
    return out, []
