"""What the method of parallelization asks of the network: the same model, batch and cluster, method by method.

A size that a method asks for is the largest up to its limit that the framework's rules and this model allow; what is left
of the GPUs is data parallel. So "tensor" over more GPUs than a node has shows why it stays inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.needs import by_medium, messages
from tokenwire.plan import alike, resolve
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.comparison import Comparison
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey
    from tokenwire.plan import Plan

Section = dict[str, str | int | bool]


@dataclass(frozen=True)
class Way:
    """A method: options of its framework, and the sizes that are made as large as works, each up to its limit.

    A limit of 0 is "all GPUs", -1 "the GPUs of a node".
    """

    name: str
    section: Section
    largest: dict[str, int] = field(default_factory=dict)


_OPTIMIZER: Section = {"dialect": "megatron", "use_distributed_optimizer": True}
WAYS: tuple[Way, ...] = (
    Way("data", {"dialect": "megatron"}),
    Way("distributed optimizer", _OPTIMIZER),
    Way("FSDP", {"dialect": "torchtitan"}),
    Way("tensor", {"dialect": "megatron"}, {"tp": 0}),
    Way("tensor + sequence", {"dialect": "megatron", "sequence_parallel": True}, {"tp": 0}),
    Way("tensor in the node", {**_OPTIMIZER, "sequence_parallel": True}, {"tp": -1}),
    Way("pipeline", {"dialect": "megatron"}, {"pp": 0}),
    Way("tensor, pipeline, data", {**_OPTIMIZER, "sequence_parallel": True}, {"tp": -1, "pp": 8}),
    Way("tensor, FSDP", {"dialect": "torchtitan"}, {"tp": -1}),
)
"""The methods that are compared, in order; the journey's own plan is added."""


@dataclass(frozen=True)
class _Row:
    name: str
    plan: Plan | None
    reason: str = ""
    nvlink_parts: tuple[tuple[str, str, int], ...] = ()
    network_parts: tuple[tuple[str, str, int], ...] = ()
    calls: int = 0
    largest: int = 0

    @property
    def nvlink(self) -> int:
        return sum(size for _, _, size in self.nvlink_parts)

    @property
    def network(self) -> int:
        return sum(size for _, _, size in self.network_parts)


def compare_parallelism(journey: Journey, gpus: int) -> Comparison:
    """Return the bytes of a step for each method on the journey's cluster, inside nodes and between them.

    ``gpus`` is not used: the number of GPUs is that of the cluster. A method that this model cannot be planned with, or a
    journey's own plan that does not work, has a row without numbers and a note that says why; ``InputError`` where all are so.
    """
    import polars as pl

    rows = [_row(journey, way.name, partial(largest_plan, journey, way)) for way in WAYS]
    if not any(row.plan for row in rows):
        journey.plan()  # nothing to compare: its error says why, unless it alone works
    rows.append(_row(journey, "this journey's plan", journey.plan))
    world = journey.config.cluster.world
    arch = journey.model().architecture
    gradients = journey.config.plan.gradient_dtype(journey.config.training)
    tokens = journey.config.training.global_batch * journey.config.training.sequence_length
    return Comparison(
        "parallelism",
        f"bytes per step by method: {arch.name} on {world:,} GPUs, {tokens:,} tokens per step",
        pl.DataFrame([_facts(row, world, tokens) for row in rows], infer_schema_length=None),
        (
            ("method", "method"), ("sizes", "tp·pp·dp"), ("nvlink_bytes_per_gpu", "NVLink/GPU"),
            ("network_bytes_per_gpu", "network/GPU"), ("network_bytes_per_token", "per token"),
            ("largest_message", "message"),
        ),
        {"method": "", "sizes": "", "nvlink_bytes_per_gpu": "B", "network_bytes_per_gpu": "B", "network_bytes_per_token": "B",
         "largest_message": "B"},
        ("network_bytes_per_gpu",),
        tuple(_formulas(rows, world)),
        (f"every method reduces gradients in {gradients.upper()}, as this journey's plan does", *_notes(rows)),
        Chart(
            f"Bytes of one step, {arch.name} on {world:,} GPUs", "bars", "method (tp·pp·dp)", "bytes sent per GPU per step",
            tuple(f"{row.name} ({_sizes(row.plan)})" for row in rows),
            (
                Series("over NVLink", tuple(row.nvlink / world if row.plan else None for row in rows)),
                Series("over the network", tuple(row.network / world if row.plan else None for row in rows)),
            ),
        ),
    )  # fmt: skip


def _row(journey: Journey, name: str, planned: Callable[[], Plan]) -> _Row:
    try:
        return _counted(journey, name, planned())
    except InputError as error:
        return _Row(name, None, str(error))


def largest_plan(journey: Journey, way: Way) -> Plan:
    """Return the plan of a method with its sizes as large as works, one size after the other.

    Raises the ``InputError`` of the smallest that was tried where none from 2 on works.
    """
    cluster = journey.config.cluster
    section: Section = {**way.section}
    for axis, limit in way.largest.items():
        most = {0: cluster.world, -1: journey.fabric().gpus_per_node}.get(limit, limit)
        section[axis] = _largest(journey, section, axis, most)
    return _plan(journey, section)


def _plan(journey: Journey, section: Section) -> Plan:
    config = journey.config
    return resolve(alike(section, config.plan, config.training), config.training, journey.model().architecture, config.cluster.world)


def _largest(journey: Journey, section: Section, axis: str, most: int) -> int:
    world = journey.config.cluster.world
    error: InputError | None = None
    for size in range(min(most, world), 1, -1):
        if world % size:
            continue
        try:
            _plan(journey, {**section, axis: size})
            return size
        except InputError as reason:
            error = reason
    raise error or InputError(f"{axis} on {world} GPUs", rule=f"no size from 2 to {most} divides them")


def _counted(journey: Journey, name: str, plan: Plan) -> _Row:
    from tokenwire.flows import traffic
    from tokenwire.step import operations

    step = operations(journey.model().architecture, plan)
    sent = messages(step, journey.config.wire)
    moved = by_medium(traffic(step, plan, journey.fabric()).transfers, journey.fabric().gpus_per_node)
    calls = int((step["count"] * (plan.world // plan.pp)).sum())
    largest = max(sent["message"], default=0)
    return _Row(name, plan, "", _parts(moved, "nvlink"), _parts(moved, "network"), calls, largest)


def _parts(moved: pl.DataFrame, medium: str) -> tuple[tuple[str, str, int], ...]:
    """Return (operation, group, bytes of all GPUs) over one medium, most first."""
    import polars as pl

    summed = moved.filter(pl.col("medium") == medium).group_by("op", "group").agg(pl.col("bytes").sum())
    return tuple(summed.sort(["bytes", "op", "group"], descending=[True, False, False]).iter_rows())


def _sizes(plan: Plan | None) -> str:
    return f"{plan.tp}·{plan.pp}·{plan.dp}" if plan else "-"


def _facts(row: _Row, world: int, tokens: int) -> dict[str, object]:
    plan, there = row.plan, row.plan is not None
    return {
        "method": row.name, "sizes": _sizes(plan), "possible": there, "reason": row.reason,
        "dialect": plan.config.dialect if plan else None, "tp": plan.tp if plan else None, "pp": plan.pp if plan else None,
        "dp": plan.dp if plan else None,
        "nvlink_bytes_per_gpu": row.nvlink / world if there else None,
        "network_bytes_per_gpu": row.network / world if there else None,
        "network_bytes_per_token": row.network / tokens if there else None,
        "sent_bytes": row.nvlink + row.network if there else None, "calls": row.calls if there else None,
        "largest_message": row.largest if there else None,
    }  # fmt: skip


def _formulas(rows: list[_Row], world: int) -> Iterator[Figure]:
    for row in rows:
        if row.plan:
            parts = " + ".join(f"{op} on {group} {format_bytes(size / world)}" for op, group, size in row.network_parts[:3])
            rest = len(row.network_parts) - 3
            yield Figure(
                f"{row.name} ({_sizes(row.plan)}): sent per GPU over the network", row.network / world, "B",
                "", parts + (f" + {rest} more" if rest > 0 else ""), "tokenwire.flows",
            )  # fmt: skip


def _notes(rows: list[_Row]) -> Iterator[str]:
    for row in rows:
        if row.plan is None:
            yield f"{row.name}: {row.reason}"
        else:
            yield from (f"{row.name}: {note}" for note in row.plan.notes)
    yield "network: bytes that leave a node, per GPU and step, and per token; message: the largest from GPU to GPU"
    there = [row for row in rows if row.plan]
    if there:
        best, worst = min(there, key=lambda row: row.network), max(there, key=lambda row: row.network)
        times = f", {worst.network / best.network:.3g} times as much" if best.network else ""
        yield f"least goes over the network with {best.name}, most with {worst.name}{times}"
