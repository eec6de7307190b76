"""One collective as people ask for it: quantities with units in, facts with names out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.collectives.algorithm import UNEVEN, algorithm, algorithms, check, transfers
from tokenwire.collectives.busbw import algbw
from tokenwire.collectives.cost import Cost, cost
from tokenwire.collectives.matrix import read_matrix
from tokenwire.collectives.tables import Ints
from tokenwire.collectives.topology import ports, topology_named
from tokenwire.collectives.uneven import cost_of, extremes, transfers_of
from tokenwire.errors import InputError
from tokenwire.units import (
    counted,
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
DEFAULT_RANKS, DEFAULT_SIZE = 8, "256 MiB"
_WRITTEN = 1 << 16  # transfers that go into JSON


@dataclass(frozen=True)
class Asked:
    """A collective on ``n`` ranks with links of ``rate`` bytes/s and ``latency`` s, in ``chunks`` pieces.

    ``matrix`` has what each rank sends each other (all_to_allv); ``size_bytes`` is the mean of its rows then.
    """

    op: str
    algorithm: str
    n: int
    size_bytes: int
    topology: str
    rate: float
    latency: float
    chunks: int
    matrix: Ints | None = None


def read(
    op: str, algorithm_name: str | None, ranks: int | None, size: str | None, topology: str, link: str, latency: str, chunks: int,
    matrix_file: str | None = None,
) -> Asked:  # fmt: skip
    """Return what was asked for, every part of it checked. Raises ``InputError`` naming the option."""
    entry = algorithm(op, algorithm_name)
    matrix = _matrix(op, ranks, size, matrix_file)
    if matrix is None:
        ranks, size_bytes = DEFAULT_RANKS if ranks is None else ranks, _read(size or DEFAULT_SIZE, parse_bytes, "--bytes")
    else:
        ranks, size_bytes = matrix.shape[0], round(int(matrix.sum()) / matrix.shape[0])
    check(op, ranks, size_bytes)
    asked = Asked(op, entry.name, ranks, size_bytes, topology_named(topology), _read(link, parse_rate, "--link"),
                  _read(latency, parse_seconds, "--latency"), chunks, matrix)  # fmt: skip
    if op in ("send", "recv") and ranks != 2:
        raise InputError(f"--ranks {ranks}", rule=f"a {op} is between 2 ranks", nearest="--ranks 2")
    return asked


def _matrix(op: str, ranks: int | None, size: str | None, file: str | None) -> Ints | None:
    if op != UNEVEN and file is None:
        return None
    if op != UNEVEN:
        raise InputError(f"--matrix for {op}", rule=f"is for {UNEVEN}: the pieces of {op} are alike", nearest=f"{UNEVEN} --matrix {file}")
    if file is None:
        raise InputError(op, rule="needs what each rank sends each other: --matrix FILE.csv (bytes, row = source, column = destination)",
                         nearest="all_to_all, where all pieces are alike")  # fmt: skip
    if size is not None:
        raise InputError(f"--bytes {size}"[:80], rule="the matrix has the bytes", nearest="--matrix without --bytes")
    return read_matrix(file, ranks)


def _read(text: str, parse: Any, option: str) -> Any:
    try:
        return parse(text)
    except InputError as error:
        raise InputError(error.what, where=option, rule=error.rule, nearest=error.nearest) from None


def costs(asked: Asked) -> Cost:
    """Return the cost of what was asked for."""
    links: dict[str, Any] = {"rate": asked.rate, "latency": asked.latency, "chunks": asked.chunks, "topology": asked.topology}
    if asked.matrix is not None:
        return cost_of(asked.algorithm, asked.matrix, **links)
    return cost(asked.op, asked.algorithm, asked.n, asked.size_bytes, **links)


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
    if asked.matrix is not None:
        most_sent, most_received = extremes(asked.matrix)
        out["total_bytes"] = int(asked.matrix.sum() - asked.matrix.trace())
        out |= {"most_sent": asdict(most_sent), "most_received": asdict(most_received)}
    if with_transfers:
        if algorithm(asked.op, asked.algorithm).count(asked.n) > _WRITTEN:
            raise InputError(f"--transfers of {asked.op} among {asked.n:,} ranks",
                             rule=f"are more than {_WRITTEN:,}", nearest="--csv FILE, or fewer --ranks")  # fmt: skip
        out["transfers"] = transfer_frame(asked).to_dicts()
    return out


def transfer_frame(asked: Asked) -> pl.DataFrame:
    """Return the transfers as a frame with the columns of ``tables.TRANSFER``."""
    import polars as pl

    if asked.matrix is not None:
        table = transfers_of(asked.algorithm, asked.matrix)
    else:
        table = transfers(asked.op, asked.algorithm, asked.n, asked.size_bytes)
    return pl.DataFrame({name: table[name] for name in COLUMNS})


def rows(facts: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the facts as lines of a table (what, value), and which columns are aligned right."""
    ports_text = f" on each of {facts['links_per_rank']} links" if facts["links_per_rank"] > 1 else ""
    beyond = "; switches add or copy: each rank sends S once" if facts["in_network"] and facts["op"] == "all_reduce" else ""
    uneven = "most_sent" in facts
    out = [
        ("a rank's tensor, on average" if uneven else "size of the full tensor", f"{format_bytes(facts['bytes'], binary=True)} ({format_count(facts['bytes'])} B)"),
        ("time", format_seconds(facts["seconds"])),
        ("  never below", format_seconds(facts["bound_seconds"]) + beyond),
        ("sent by a rank, at most" if uneven else "sent by a rank", f"{format_bytes(facts['sent_bytes_per_rank'])} ({format_count(facts['sent_bytes_per_rank'])} B)"),
        ("steps", f"{facts['steps']:,}, each in {counted(facts['chunks'], 'piece')}"),
        ("algbw = S/t", format_memory_rate(facts["algbw_bytes_per_s"])),
        ("busbw, as nccl-tests", format_memory_rate(facts["busbw_bytes_per_s"])),
        ("link", f"{format_memory_rate(facts['link_bytes_per_s'])} = {format_rate(facts['link_bytes_per_s'])}{ports_text}"),
    ]
    return out + (_uneven_rows(facts) if uneven else []), []


def _uneven_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    rate = facts["link_bytes_per_s"] * facts["links_per_rank"]
    return [
        ("sent by all", f"{format_bytes(facts['total_bytes'])} ({format_count(facts['total_bytes'])} B)"),
        *(
            (what, f"rank {one['rank']}: {format_bytes(one['bytes'])}, {one['imbalance']:.2f} x mean, {format_seconds(one['bytes'] / rate)}")
            for what, one in (("most sent (outcast)", facts["most_sent"]), ("most received (incast)", facts["most_received"]))
        ),
    ]  # fmt: skip
