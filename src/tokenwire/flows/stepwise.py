"""One call of a collective, step by step over the links: each transfer when what it sends is there, also with ranks that come late.

A transfer waits for

- what it passes on: every transfer of an earlier step that brought any byte of it to its sender (of all_to_all nothing is passed
  on: there a rank waits for its own sends of the step before);
- what the two ranks had between them in a step before, which a connection carries in order (what goes in one step goes at once);
- both of its ranks: a rank that comes t late sends nothing and takes nothing before t.

All groups of a kind make their call at once. The sums that a rank does between are free. Case 9 of the documentation is this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.collectives import transfers
from tokenwire.collectives.tables import Table
from tokenwire.errors import InputError, closest
from tokenwire.fabric import Fabric, ways
from tokenwire.fabric.fabric import Floats, Ints
from tokenwire.flows.maxmin import simulate
from tokenwire.flows.times import times_of

if TYPE_CHECKING:
    from tokenwire.flows.traffic import Traffic

MOST_TRANSFERS = 1 << 21
"""Transfers of one call, of all groups together, that are simulated."""
MOST_STRETCHES = 1 << 24
"""Stretches of the tensor that all transfers of one call cover, counted for each."""


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


def waits(op: str, table: Table) -> Ints:
    """Return which transfer waits for which: pairs (before, then), shape (m, 2).

    >>> from tokenwire.collectives import transfers
    >>> waits("broadcast", transfers("broadcast", "ring", 3, 2)).tolist()  # 0>1, 0>1, 1>2, 1>2 in two pieces
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """
    src, dst, step = (table[name].astype(np.int64) for name in ("src", "dst", "step"))
    steps = int(step.max(initial=0)) + 1
    # Rows by stretch of the tensor: what two rows have in common shows in one that both have. A message of no bytes counts as one.
    row, part, parts = _stretches(table) if op != "all_to_all" else (np.arange(table.size), np.zeros(table.size, dtype=np.int64), 1)
    # What comes to a member: by (member, stretch, step). Of all_to_all: what it has sent, by (member, step).
    comes = ((dst if op != "all_to_all" else src)[row] * parts + part) * steps + step[row]
    order = np.argsort(comes, kind="stable")
    sorted_ = comes[order]
    first = (src[row] * parts + part) * steps
    low = np.searchsorted(sorted_, first if op != "all_to_all" else first + np.maximum(step - 1, 0))
    high = np.searchsorted(sorted_, first + step[row])
    many = high - low
    then = np.repeat(row, many)
    before = row[order[np.repeat(low, many) + np.arange(then.size) - np.repeat(np.cumsum(many) - many, many)]]
    # One number a pair: far faster to sort than rows of two.
    pairs = np.concatenate([np.stack([before, then], axis=1), _in_order(src, dst, step)])
    key = _distinct(pairs[:, 0] * max(table.size, 1) + pairs[:, 1])
    return np.stack(np.divmod(key, max(table.size, 1)), axis=1)


def _in_order(src: Ints, dst: Ints, step: Ints) -> Ints:
    """Return pairs (before, then) of each connection: what it carries in a step waits for all that it carried in its step before."""
    line = np.lexsort((step, dst, src))
    ends = np.stack([src[line], dst[line], step[line]])
    new = np.append(True, (ends[:, 1:] != ends[:, :-1]).any(axis=0)) if line.size else np.zeros(0, dtype=np.bool_)
    start = np.flatnonzero(new)
    size = np.diff(np.append(start, line.size))
    goes_on = np.append(False, (ends[:2, start[1:]] == ends[:2, start[:-1]]).all(axis=0)) if start.size else new
    group = np.cumsum(new) - 1
    then = np.flatnonzero(goes_on[group])
    earlier = group[then] - 1
    many = size[earlier]
    row = np.repeat(then, many)
    before = start[np.repeat(earlier, many)] + np.arange(row.size) - np.repeat(np.cumsum(many) - many, many)
    return np.stack([line[before], line[row]], axis=1)


def _distinct(values: Ints) -> Ints:
    """Return the distinct values in order; by sorting, since numpy's own way by hashes takes many times as long for millions."""
    out: Ints = np.sort(values)
    first: Ints = out[np.append(True, out[1:] != out[:-1])[: out.size]]
    return first


def _stretches(table: Table) -> tuple[Ints, Ints, int]:
    """Return each transfer once for every stretch of the tensor that it covers: (row, stretch), and how many stretches there are.

    A stretch is what lies between two places at which any transfer begins or ends.
    """
    begin = table["offset"].astype(np.int64)
    end = begin + np.maximum(table["bytes"], 1)
    bounds = _distinct(np.concatenate([begin, end]))
    first = np.searchsorted(bounds, begin)
    many = np.searchsorted(bounds, end) - first
    if many.sum() > MOST_STRETCHES:
        raise InputError(f"{table.size:,} transfers over {bounds.size:,} places", nearest="a smaller group",
                         rule=f"at most {MOST_STRETCHES:,} are followed one by one")  # fmt: skip
    row = np.repeat(np.arange(table.size), many)
    return row, first[row] + np.arange(row.size) - np.repeat(np.cumsum(many) - many, many), int(bounds.size)


def run_call(
    fabric: Fabric, op: str, algorithm: str | None, groups: Ints, size: int, *, late: Mapping[int, float] | None = None,
    seed: int = 0, pxn: bool = True,
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
    found = ways(fabric, src, dst, np.tile(table["bytes"], groups.shape[0]), seed=seed, pxn=pxn)
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
        options = {"seed": traffic.seed, "pxn": traffic.pxn}
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
