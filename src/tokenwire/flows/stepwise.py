"""One call of a collective, step by step over the links: each transfer when what it sends is there, also with ranks that come late.

What a transfer waits for is in ``waiting``; besides, a rank that comes t late sends nothing and takes nothing before t.

All groups of a kind make their call at once. The sums that a rank does between are free. Case 9 of the documentation is this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.collectives import transfers
from tokenwire.collectives.nccl.protocols import links_bytes
from tokenwire.errors import InputError, closest
from tokenwire.fabric import Fabric, ways
from tokenwire.fabric.fabric import Floats, Ints
from tokenwire.flows.maxmin import simulate
from tokenwire.flows.times import times_of
from tokenwire.flows.waiting import waits

if TYPE_CHECKING:
    from tokenwire.flows.traffic import Traffic

MOST_TRANSFERS = 1 << 21
"""Transfers of one call, of all groups together, that are simulated."""


@dataclass(frozen=True)
class Call:
    """One call of a kind: the full tensor's ``bytes``, the groups that make it at once, shape (groups, members)."""

    op: str
    group: str
    phase: str
    bytes: int
    groups: Ints


def late_ranks(given: Sequence[str], world: int) -> dict[int, float]:
    """Return ``["3=1 ms"]`` as {3: 0.001} (seconds). Raises ``InputError`` for ranks or times that are none."""
    return times_of(given, world, "--late", "ranks")


def run_call(
    fabric: Fabric, op: str, algorithm: str | None, groups: Ints, size: int, *, late: Mapping[int, float] | None = None,
    seed: int = 0, pxn: bool = True, protocol: str = "Simple",
) -> tuple[Floats, Floats, Ints, Ints]:  # fmt: skip
    """Return when each transfer began and ended (s), and its sender and receiver (GPUs); members of ``groups`` are GPUs.

    >>> from tokenwire.fabric import ClusterConfig, build
    >>> fabric = build(ClusterConfig(nodes=2))
    >>> began, ended, _, _ = run_call(fabric, "all_reduce", "ring", np.array([[0, 8]]), 100_000)
    >>> round(float(ended.max()) * 1e6, 3)                             # 2 steps of 50,000 B at 50 GB/s and 2 links of 500 ns
    4.0
    """
    table = transfers(op, algorithm, groups.shape[1], size)
    # Switches that add are members beyond the group: they are not GPUs.
    if table.size and max(table["src"].max(), table["dst"].max()) >= groups.shape[1]:
        raise InputError(f"{op} by {algorithm}", rule="switches add in it, so it is not traffic between GPUs", nearest="ring")
    if table.size * groups.shape[0] > MOST_TRANSFERS:
        raise InputError(f"{op} of {groups.shape[1]:,} ranks in {groups.shape[0]:,} groups", nearest="--only another group",
                         rule=f"is {table.size * groups.shape[0]:,} transfers, at most {MOST_TRANSFERS:,} are simulated")  # fmt: skip
    src, dst = (groups[:, table[end]].reshape(-1) for end in ("src", "dst"))
    pairs = waits(op, table)
    shifts = (np.arange(groups.shape[0]) * table.size)[:, None, None]
    after = (pairs[None] + shifts).reshape(-1, 2)
    found = ways(fabric, src, dst, np.tile(links_bytes(protocol, table["bytes"]), groups.shape[0]), seed=seed, pxn=pxn)
    start = np.zeros(src.size)
    for rank, seconds in (late or {}).items():
        start[(src == rank) | (dst == rank)] = np.maximum(start[(src == rank) | (dst == rank)], seconds)
    strands = np.searchsorted(found.pair, np.arange(src.size + 1))
    if found.size.size != src.size:
        after = _between_strands(after, strands)
    shared = simulate((found.offsets, found.entries), found.size, found.rate, latency=found.latency, use=found.use,
                      start=start[found.pair], after=after)  # fmt: skip
    began, ended = np.full(src.size, np.inf), np.zeros(src.size)
    np.minimum.at(began, found.pair, shared.began)
    np.maximum.at(ended, found.pair, shared.ended)
    return began, ended, src, dst


def _between_strands(after: Ints, strands: Ints) -> Ints:
    # Every strand of a transfer waits for all strands of the one before.
    counts = np.diff(strands)
    one = np.repeat(np.arange(after.shape[0]), counts[after[:, 0]] * counts[after[:, 1]])
    k = np.arange(one.size) - np.repeat(np.cumsum(counts[after[:, 0]] * counts[after[:, 1]]) - counts[after[:, 0]] * counts[after[:, 1]],
                                        counts[after[:, 0]] * counts[after[:, 1]])  # fmt: skip
    before, then = after[one, 0], after[one, 1]
    return np.stack([strands[before] + k // counts[then], strands[then] + k % counts[then]], axis=1)


def calls(traffic: Traffic, only: Sequence[str] = ()) -> Iterator[Call]:
    """Yield the largest call of each kind of collective of the step. Raises ``InputError`` for names that it does not have."""
    plan = traffic.plan
    largest: dict[tuple[str, str, str], tuple[int, set[int]]] = {}
    known: set[str] = set()
    for stage, op, group, phase, parallelism, size, n in traffic.said:
        known |= {group, phase, parallelism}
        if n < 2 or (only and not set(only) & {group, phase, parallelism}):
            continue
        before, stages = largest.get((op, group, phase), (0, set()))
        stages.add(stage)
        largest[op, group, phase] = (max(before, size), stages)
    for name in only:
        if name not in known:
            raise InputError(f"--only {name}"[:80], rule=f"the step has {', '.join(sorted(known)) or 'nothing to send'}",
                             nearest=closest(name, known))  # fmt: skip
    for (op, group, phase), (size, stages) in largest.items():
        groups = np.unique(np.concatenate([plan.groups(group, stage) for stage in sorted(stages)]), axis=0)
        yield Call(op, group, phase, size, groups)


def late_facts(traffic: Traffic, late: Mapping[int, float], only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return for each kind's largest call: seconds with all ranks in time, with the late ones, and what of it others wait.

    ``seconds`` is from when the first rank is ready; ``delay_seconds`` what the late ranks cost; ``ranks_held_up`` how many
    other ranks end later than they would have.
    """
    out = []
    for call in calls(traffic, only):
        algorithm = traffic.algorithms.get(call.op)
        groups = traffic.gpus(call.groups)
        options = {"seed": traffic.seed, "pxn": traffic.pxn, "protocol": traffic.protocol}
        runs = []
        for delays in ({}, {int(traffic.gpus(np.array([rank]))[0]): seconds for rank, seconds in late.items()}):
            _, ended, src, dst = run_call(traffic.fabric, call.op, algorithm, groups, call.bytes, late=delays, **options)  # type: ignore[arg-type]
            done = np.zeros(traffic.fabric.world)
            np.maximum.at(done, src, ended)
            np.maximum.at(done, dst, ended)
            runs.append((float(ended.max(initial=0.0)), done, src.size))
        (before, in_time, many), (after, held, _) = runs
        others = np.ones(in_time.size, dtype=np.bool_)
        others[traffic.gpus(np.array(sorted(late), dtype=np.int64))] = False
        out.append({
            "op": call.op, "group": call.group, "phase": call.phase, "bytes": call.bytes, "transfers": many,
            "in_time_seconds": before, "seconds": after, "delay_seconds": after - before,
            "ranks_held_up": int((others & (held > in_time * (1 + 1e-9) + 1e-12)).sum()),
        })  # fmt: skip
    return out
