"""How long each row of the step table takes, and which action of the pipeline waits for it.

A call's time is NCCL's own estimate on the nodes and NICs of its group (``collectives.nccl``), what was measured on the machine
where its catalog has it and the group fits a node, and latency and bandwidth (``collectives.cost``) for what NCCL's tuner does not
choose (all_to_all, send) or a machine that NCCL does not know. Groups of one kind that share a node's NICs at the same time share
their rate: a group with r ranks a node has r/g of its NICs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tokenwire.collectives import algorithms, cost
from tokenwire.collectives.nccl import Machine, choose
from tokenwire.collectives.nccl.constants import OPERATIONS, of_gpu
from tokenwire.collectives.nccl.graph import graphs
from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.plan import Plan
from tokenwire.plan.grid import Grid, Ranks
from tokenwire.plan.torchtitan import TorchtitanPlan
from tokenwire.step.operation import Operation, Product
from tokenwire.timeline.accelerator import Accelerator

CALL_SECONDS = 1e-5
"""Start of a send or an exchange between GPUs where nothing was measured (assumed)."""

USUAL_LATENCY = 1e-6
"""Seconds of a link beyond which a network is longer than those of NCCL's own latencies (assumed)."""


class Place(NamedTuple):
    """Where a group stands: its size, the nodes that it spans, and its ranks on a node."""

    ranks: int
    nodes: int
    per_node: int


@lru_cache(maxsize=4096)
def call_seconds(op: str, size: int, place: Place, facts: ClusterFacts, gpu: Accelerator, once: float = 1.0) -> float:
    """Return the seconds of one call of ``size`` bytes (of the full tensor) in a group; ``once`` as in ``exchange``.

    >>> from tokenwire.fabric import preset
    >>> from tokenwire.timeline.accelerator import accelerator
    >>> dgx, h100 = preset("dgx-h100-superpod"), accelerator("H100 SXM")
    >>> call_seconds("all_gather", 2**30, Place(8, 1, 8), dgx, h100) < call_seconds("all_gather", 2**30, Place(8, 8, 1), dgx, h100)
    True
    """
    if place.ranks < 2 or op == "recv":
        return 0.0
    if op == "barrier":
        op, size = "all_reduce", 4
    if op in gpu.network and place.nodes == 1:
        return _measured(op, size, place.ranks, gpu)
    shared = nics_of(place, facts)
    nic = facts.nic_rate * min(1.0, shared * facts.gpus_per_node / max(1, place.per_node * facts.nics_per_node))
    inside = facts.domain_rate if facts.domain != "none" else facts.nic_rate
    if op == "send":
        rate, late = (inside, facts.domain_latency) if place.nodes == 1 else (
            min(nic * shared, inside), 2 * facts.link_latency
        )  # fmt: skip
        return size / rate + late + CALL_SECONDS
    if op == "all_to_all":
        return _exchange(size, place, inside, nic * shared / place.per_node, facts, once)
    machine = _machine(place, facts, shared, nic)
    if machine is not None and op in OPERATIONS:
        try:
            chosen = choose(machine, op, size)
        except InputError:
            pass  # NICs below 2 Gb/s: slower than the slowest that NCCL's search of channels knows
        else:
            return chosen.seconds + _farther(op, chosen.algorithm, place.nodes, facts.link_latency)
    rate = inside if place.nodes == 1 else min(nic * shared, inside)
    latency = facts.domain_latency if place.nodes == 1 else 2 * facts.link_latency
    name = "ring" if "ring" in algorithms(op) else None
    return cost(op, name, place.ranks, size, rate=rate, latency=latency).seconds + CALL_SECONDS


def _farther(op: str, algorithm: str, nodes: int, link_latency: float) -> float:
    """Return the seconds that a call takes longer where links are longer than in the networks that NCCL's latencies were measured on."""
    more = max(0.0, 2 * (link_latency - USUAL_LATENCY))
    hops = 2 * math.ceil(math.log2(nodes)) if algorithm == "tree" else (nodes - 1) * (2 if op == "all_reduce" else 1)
    return more * hops if nodes > 1 else 0.0


def _measured(op: str, size: int, n: int, gpu: Accelerator) -> float:
    call = gpu.network[op]
    fixed = dict(call.fixed_by_ranks).get(n, call.fixed)
    if op == "send":
        return size / (gpu.network_rate * call.share) + call.latency + fixed
    times = 2 if op == "all_reduce" else 1
    moved, hops = times * (n - 1) / n * size, times * n - 1 if op == "all_reduce" else n - 1
    return moved / (gpu.network_rate * call.share) + fixed + hops * call.latency


def _exchange(size: int, place: Place, inside: float, nic: float, facts: ClusterFacts, once: float) -> float:
    """Return an all_to_all by sends: each rank's part for its node by NVLink, the rest by its NIC, at the same time."""
    n = place.ranks
    near, far = size * (place.per_node - 1) / n, once * size * (n - place.per_node) / n
    late = facts.domain_latency if place.nodes == 1 else 2 * facts.link_latency
    return max(near / inside, far / nic if far else 0.0) + late + CALL_SECONDS


def nics_of(place: Place, facts: ClusterFacts) -> int:
    """Return how many of a node's NICs a group has, beside the other groups of its kind."""
    return max(1, round(place.per_node * facts.nics_per_node / facts.gpus_per_node))


def channel_nics(place: Place, facts: ClusterFacts) -> int | None:
    """Return the NICs of a node that the rings of a group leave it by; None where NCCL does not lay them.

    >>> from tokenwire.fabric import preset
    >>> channel_nics(Place(16, 2, 8), preset("dgx-h100-superpod")), channel_nics(Place(2, 2, 1), preset("dgx-h100-superpod"))
    (8, 1)
    """
    nics = nics_of(place, facts)
    machine = _machine(place, facts, nics, facts.nic_rate)
    try:
        return None if machine is None else min(nics, max(graphs(machine)["Ring"].channels, 1))
    except InputError:
        return None


@lru_cache(maxsize=256)
def _machine(place: Place, facts: ClusterFacts, nics: int, nic_rate: float) -> Machine | None:
    try:
        generation, cpu = of_gpu(facts.gpu)
    except InputError:
        return None
    nvlink = facts.domain_rate if facts.domain == "nvlink" else 0.0
    return Machine(
        generation, place.nodes, place.per_node, nvlink, nics, nic_rate, nvswitch=place.per_node > 1 and bool(nvlink), cpu=cpu
    )  # fmt: skip


def place_of(plan: Plan, group: str, stage: int, gpus_per_node: int, peer: int | None = None) -> Place:
    """Return where the group of the stage's first rank stands (its own two ends for a send to the stage ``peer``)."""
    each = plan.world // plan.pp
    if peer is not None:
        src, dst = stage * each // gpus_per_node, peer * each // gpus_per_node
        return Place(2, 1 if src == dst else 2, 2 if src == dst else 1)
    if group == "embedding":
        return _place(plan.members(group, stage * each), gpus_per_node)
    return _place_in(*plan.group(group), stage * each, gpus_per_node)


@lru_cache(maxsize=4096)
def _place_in(grid: Grid, axes: tuple[str, ...], rank: int, gpus_per_node: int) -> Place:
    return _place(grid.group_of(rank, *axes), gpus_per_node)


def _place(members: Ranks, gpus_per_node: int) -> Place:
    if not len(members):
        return Place(1, 1, 1)
    nodes = 1 + int(np.count_nonzero(np.diff(members // gpus_per_node)))  # members ascend
    return Place(len(members), nodes, -(-len(members) // nodes))


class Calls:
    """The calls of one plan on one cluster: where groups stand and how long calls take, each worked out once."""

    def __init__(
        self, plan: Plan, facts: ClusterFacts, gpu: Accelerator, slower: Mapping[tuple[str, str, str], float] | None = None,
        once: Callable[[Place], float] = lambda place: 1.0,
    ) -> None:  # fmt: skip
        """``slower`` are factors by (operation, group, phase) of calls that share links with others (``sharing.slowdowns``).

        ``once`` is the share of an exchange between nodes that is sent (``exchange``).
        """
        self.plan, self.facts, self.gpu, self.slower, self.once = plan, facts, gpu, slower or {}, once
        self._places: dict[tuple[str, int, int | None], Place] = {}
        self._seconds: dict[tuple[str, int, Place], float] = {}

    def place(self, group: str, stage: int, peer: int | None) -> Place:
        """Return where the group of the stage's first rank stands."""
        # Stages that begin at the same place of a node have their groups alike, but for the two ends of a send and the embedding.
        each, g = self.plan.world // self.plan.pp, self.facts.gpus_per_node
        alike = stage if peer is not None or group in ("embedding", "pp", "mp") else -1 - stage * each % g
        key = (group, alike, peer)
        if key not in self._places:
            self._places[key] = place_of(self.plan, group, stage, g, peer)
        return self._places[key]

    def seconds(self, op: str, size: int, place: Place) -> float:
        """Return the seconds of one call."""
        key = (op, size, place)
        if key not in self._seconds:
            once = self.once(place) if op == "all_to_all" else 1.0
            self._seconds[key] = call_seconds(op, size, place, self.facts, self.gpu, once)
        return self._seconds[key]


class Overlap(NamedTuple):
    """A class of calls within a micro-batch: the ``parallelism`` that needs them, and the ``product`` of the backward that they overlap."""

    parallelism: str
    product: Product | None = None


@dataclass
class Said:
    """Seconds of communication of one rank of a stage, by when they are spoken.

    ``action[chunk, phase]`` are seconds of one micro-batch by the parallelism of their rows (``tp``, ``sp``, ``cp``, ``ep``; ``dp`` and
    ``fsdp`` where data parallelism communicates in every micro-batch) and the product that they overlap. ``send`` is of one
    activation; ``tail`` has calls and their seconds altogether by class of the end of the step (``ending``). ``by_class`` has all seconds of
    a step by these same classes, and ``pp``. ``across`` are the parallelisms that leave the node, and need its NICs.
    """

    action: dict[tuple[int, str], dict[Overlap, float]] = field(default_factory=dict)
    send: float = 0.0
    tail: dict[str, tuple[int, float]] = field(default_factory=dict)
    by_class: dict[str, float] = field(default_factory=dict)
    across: set[str] = field(default_factory=set)

    def network(self, chunk: int, phase: str) -> float:
        """Return the seconds of a micro-batch in which the NICs serve calls that are not of data parallelism, and sends."""
        own = self.action.get((chunk, phase), {})
        seconds = sum(spent for who, spent in own.items() if who.parallelism in self.across - DATA)
        return seconds + (self.send if "pp" in self.across else 0.0)


TENSOR = {"tp", "sp"}
"""Parallelisms within a product."""
MICRO_BATCH: dict[str, str] = {"data": "forward", "forward": "forward", "backward": "backward"}
"""Phases of a micro-batch, and in which of its two passes they are."""
DATA = {"dp", "fsdp"}
"""Parallelisms of data: what they say hides behind computation, and goes after all others on the NICs."""


def ending(op: str, who: str, phase: str) -> str:
    """Return the class of a call at the end of a step: gradients, weights gathered for the next step, or small (norms, flags, losses).

    >>> ending("reduce_scatter", "dp", "gradients"), ending("all_gather", "dp", "optimizer"), ending("all_reduce", "dp", "optimizer")
    ('gradients', 'weights', 'small')
    """
    if phase == "gradients" and (who in DATA or who == "ep"):
        return "gradients"
    return "weights" if phase == "optimizer" and op in ("all_gather", "broadcast") else "small"


def said(rows: Iterable[Operation], stage: int, calls: Calls) -> Said:
    """Return the seconds of a stage's rows of the step table, spread over chunks by their layers."""
    out, plan = Said(), calls.plan
    shares = Shares.of([len(chunk) for chunk in plan.stages[stage].chunks])
    for row in rows:
        op, group, phase, who = row.op, row.group, row.phase, row.parallelism
        if phase == "setup" or op == "recv":
            continue
        place = calls.place(group, stage, row.peer)
        each = calls.seconds(op, row.bytes, place) * calls.slower.get((op, group, phase), 1.0)
        spent = each * row.count
        if place.nodes > 1:
            out.across.add(who)
        if op == "send" and group == "pp":
            out.send = max(out.send, each)
        elif phase in MICRO_BATCH or (phase == "gradients" and who in DATA and _each_micro_batch(plan, op)):
            _spread(out, shares.of_row(row), MICRO_BATCH.get(phase, "backward"), _class(row), spent / plan.micro_batches)
        else:
            who = ending(op, who, phase)
            number, seconds = out.tail.get(who, (0, 0.0))
            out.tail[who] = number + row.count, seconds + spent
        out.by_class[who] = out.by_class.get(who, 0.0) + spent
    return out


def _each_micro_batch(plan: Plan, op: str) -> bool:
    """Return whether gradients are reduced by ``op`` in every micro-batch, rather than once a step."""
    config = plan.config
    if isinstance(config, TorchtitanPlan):
        return config.reduces_each(op)
    if config.dialect == "deepspeed":
        return getattr(config, "zero_stage", 0) >= 2
    if config.dialect == "megatron":
        return bool(getattr(config, "use_megatron_fsdp", False))
    return config.dialect == "ddp" and not getattr(config, "no_sync", False)


def _class(row: Operation) -> Overlap:
    """Return the class of a row of a micro-batch."""
    # The output layer's products are timed apart from those of the layers, so its calls are not overlapped with them.
    return Overlap(row.parallelism, row.overlapped if row.layers else None)


class Shares(NamedTuple):
    """Which share of a row each virtual stage of a rank says: by its layers, or all by the first or the last one."""

    layers: tuple[float, ...]
    first: tuple[float, ...]
    last: tuple[float, ...]

    @classmethod
    def of(cls, chunks: list[int]) -> Shares:
        """Return the shares for virtual stages of so many layers."""
        whole, others = sum(chunks) or 1, (0.0,) * (len(chunks) - 1)
        return cls(tuple(layers / whole for layers in chunks), (1.0, *others), (*others, 1.0))

    def of_row(self, row: Operation) -> tuple[float, ...]:
        """Return the shares of a row: embedding, head and loss are not of all."""
        if row.layers:
            return self.layers
        return {"layers": self.layers, "embedding": self.first, "head": self.last, "loss": self.last}[row.role]


def _spread(out: Said, shares: tuple[float, ...], phase: str, who: Overlap, seconds: float) -> None:
    """Add seconds of a micro-batch to the virtual stages."""
    for chunk, share in enumerate(shares):
        if share:
            sums = out.action.setdefault((chunk, phase), {})
            sums[who] = sums.get(who, 0.0) + seconds * share
