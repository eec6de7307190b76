"""How long a collective takes on a small topology: latency and bandwidth, with pieces that pipeline.

A message of S bytes is cut in K pieces, each of which goes through all m steps of the algorithm; the links work on the
pieces in turn. One piece needs x seconds of the busiest link in a step and arrives l seconds later. With equal steps, a
link is either always busy (K·x > x + l) or waits for the latency, so that a step begins every max(K·x, x + l) and

    t = (m - 1) · max(K·x, x + l) + K·x + l.

Steps that differ follow the same rule one by one. The bound that no algorithm beats is the
bytes that a member must send, over all its links, and the latency of one message.

Source: Hockney 1994 (latency and bandwidth); Thakur, Rabenseifner and Gropp 2005, section 4 (steps).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenwire.collectives.algorithm import Algorithm, Round, algorithm, check, sent_bytes
from tokenwire.collectives.busbw import busbw_factor
from tokenwire.collectives.topology import load, ports, topology_named
from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.units import format_bytes, format_memory_rate, format_seconds

_LIMIT = 1 << 23  # steps times pieces that are followed one by one
MOST_CHUNKS = 1 << 20


@dataclass(frozen=True)
class Cost:
    """What one call costs: ``seconds`` in all, ``bound_seconds`` that no algorithm beats (of its kind: ``in_network`` or not).

    ``sent_bytes`` by the member that sends most, ``steps`` of the algorithm, ``busbw`` in bytes/s.
    """

    op: str
    algorithm: str
    n: int
    size_bytes: int
    seconds: float
    bound_seconds: float
    sent_bytes: int
    steps: int
    in_network: bool
    counted_bytes: float
    derivation: Figure

    @property
    def busbw(self) -> float:
        """Return the bus bandwidth in bytes/s, as nccl-tests define it: ``counted_bytes`` over the time."""
        return self.counted_bytes / self.seconds if self.seconds > 0 else 0.0


def cost(
    op: str, algorithm_name: str | None, n: int, size_bytes: int, *, rate: float, latency: float = 0.0, chunks: int = 1,
    topology: str = "switch",
) -> Cost:  # fmt: skip
    """Return the time of one call on n members whose links have ``rate`` bytes/s and ``latency`` seconds.

    ``chunks`` is K. Raises ``InputError`` for what cannot be.

    >>> c = cost("all_reduce", "ring", 4, 400, rate=100.0, topology="ring")    # 6 steps of 100 B
    >>> c.seconds, c.sent_bytes, c.busbw
    (6.0, 600, 100.0)
    """
    check(op, n, size_bytes)
    entry = algorithm(op, algorithm_name)
    counted = size_bytes * busbw_factor(op, n)
    must = 0.0
    if n > 1 and op not in ("barrier", "recv"):
        must = float(size_bytes) if entry.in_network and op == "all_reduce" else counted
    return cost_of_rounds(
        entry, entry.rounds(n, size_bytes), n, size_bytes, sent=int(sent_bytes(op, entry.name, n, size_bytes).max()), must=must,
        counted=counted, rate=rate, latency=latency, chunks=chunks, topology=topology,
    )  # fmt: skip


def cost_of_rounds(
    entry: Algorithm, rounds: Iterable[Round], n: int, size_bytes: int, *, sent: int, must: float, counted: float, rate: float,
    latency: float, chunks: int, topology: str,
) -> Cost:  # fmt: skip
    """Return the time of ``rounds`` among n members, the busiest of which sends ``sent`` bytes.

    ``must`` is what some member has to move by any algorithm, ``counted`` what the bus bandwidth counts.
    """
    _check_numbers(rate, latency, chunks)
    where = topology_named(topology)
    steps = _steps(rounds, n, rate, latency, chunks, where) if n > 1 else []
    seconds = _finish(steps, chunks)
    bound = must / (rate * ports(where, n)) + min(latency, sum(m * late for m, _, late in steps))
    return Cost(
        entry.op, entry.name, n, size_bytes, seconds, bound, sent, sum(m for m, _, _ in steps), entry.in_network, counted,
        _derivation(entry.op, entry, where, n, size_bytes, rate, latency, chunks, steps, seconds),
    )  # fmt: skip


def _check_numbers(rate: float, latency: float, chunks: int) -> None:
    if not 0 < rate < 1e18:
        raise InputError(f"a link of {rate:g} B/s", rule="a rate must be above zero", nearest="'400 Gb/s'")
    if not 0 <= latency < 1e6:
        raise InputError(f"a latency of {latency:g} s", rule="must be zero or more", nearest="'500 ns'")
    if not 1 <= chunks <= MOST_CHUNKS:
        raise InputError(f"{chunks:,} chunks", rule=f"a message has 1 to {MOST_CHUNKS:,} pieces",
                         nearest=str(min(max(chunks, 1), MOST_CHUNKS)))  # fmt: skip


def _steps(
    rounds: Iterable[Round], n: int, rate: float, latency: float, chunks: int, topology: str
) -> list[tuple[int, float, float]]:
    """Return the steps as (how many, seconds of the busiest link for one piece, seconds until it has arrived)."""
    out: list[tuple[int, float, float]] = []
    for part in rounds:
        size, hops = load(topology, n, part)
        one = part.repeat, size / rate / chunks, hops * latency
        if out and out[-1][1:] == one[1:]:
            out[-1] = (out[-1][0] + one[0], *one[1:])
        else:
            out.append(one)
    return out


def _finish(steps: list[tuple[int, float, float]], K: int) -> float:
    if not steps:
        return 0.0
    if len(steps) == 1:
        m, x, late = steps[0]
        return (m - 1) * max(K * x, x + late) + K * x + late
    if sum(m for m, _, _ in steps) * K > _LIMIT:
        raise InputError(f"{K:,} chunks", rule="are too many for steps that differ", nearest="--chunks 1")
    free, ready = 0.0, [0.0] * K
    for m, x, late in steps:
        for _ in range(m):
            for k in range(K):
                free = max(free, ready[k]) + x
                ready[k] = free + late
    return ready[-1]


def _derivation(
    op: str, entry: Algorithm, topology: str, n: int, S: int, rate: float, latency: float, K: int,
    steps: list[tuple[int, float, float]], seconds: float,
) -> Figure:  # fmt: skip
    name = f"{op} by {entry.name} on {n:,} ranks ({topology})"
    source = entry.source or "Hockney 1994"
    if not steps:
        return Figure(name, seconds, "s", "a group of one sends nothing", source=source)
    if len(steps) > 1:
        x = sum(m * x * K for m, x, _ in steps)
        late = sum(m * late for m, _, late in steps)
        return Figure(
            name, seconds, "s", "Σ steps: max(link free, piece there) + x, arriving l later",
            f"{sum(m for m, _, _ in steps):,} steps, Σ K·x = {format_seconds(x)}, Σ l = {format_seconds(late)}, K = {K}",
            source,
        )  # fmt: skip
    m, x, late = steps[0]
    piece = x * rate
    values = (
        f"{m - 1:,}·max({K}·{format_seconds(x)}, {format_seconds(x)} + {format_seconds(late)})"
        f" + {K}·{format_seconds(x)} + {format_seconds(late)}"
    )
    because = (
        f"x = {format_bytes(piece)} over {format_memory_rate(rate)} for one of K = {K} pieces in each of m = {m:,} steps; "
        + ("the links are always busy" if K * x >= x + late else "each step waits for the latency")
    )
    return Figure(name, seconds, "s", "(m-1)·max(K·x, x+l) + K·x + l", values, source, because)
