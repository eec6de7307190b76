"""Which parameters ZeRO-3 gathers when: its coordinator followed step by step.

Modules run in a known order, forward and back. Before a module its missing parameters are gathered together, then the next
ones in the order are fetched ahead while they fit (``stage3_prefetch_bucket_size``, ``stage3_max_live_parameters``). After a
module its parameters are let go, unless they are small enough to stay (``stage3_param_persistence_threshold``), come again
within ``stage3_max_reuse_distance`` elements, or were passed over by fetching ahead. Source: DeepSpeed 0.19,
runtime/zero/partitioned_param_coordinator.py (fetch_sub_module, release_sub_module, __params_to_release).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from tokenwire.model.architecture import Tensor
from tokenwire.step.dialects.ddp.buckets import running_order

Gather = tuple[Literal["forward", "backward"], tuple[str, ...]]
"""The pass in which a gather is asked for, and the names of its parameters."""


@dataclass(frozen=True)
class Limits:
    """DeepSpeed's limits in elements."""

    persistence: int
    prefetch: int
    live: int
    reuse: int


def modules(held: list[Tensor], *, tied: bool = False) -> list[tuple[str, ...]]:
    """Return the parameters of each module in the order in which modules run, forward and then back.

    A product or a norm is a module; what holds others (model, block, attention, feed-forward) and the attention kernel are
    modules without parameters of their own, at which the coordinator fetches ahead all the same. Backward meets what holds
    others before them, and those in reverse.

    >>> modules([Tensor("a.weight", "mixer", (2,)), Tensor("a.bias", "mixer", (2,)), Tensor("b.weight", "mixer", (2,))])
    [(), ('a.weight', 'a.bias'), ('b.weight',), (), ('b.weight',), ('a.weight', 'a.bias')]
    """
    root = _Module()
    for tensor in running_order(held):
        parts = re.sub(r"\.(weight|bias)$", "", tensor.name).split(".")
        at = root
        # The list of layers is not run itself, its members are.
        for part in [f"layers.{parts[1]}", *parts[2:]] if parts[0] == "layers" else parts:
            if part == "output" and at.name == "attention":
                at.child("kernel")
            at = at.child(part)
        at.parameters.append(tensor.name)
    if tied:
        root.child("head").parameters.append("embedding.weight")
    return [*root.run(backward=False), *root.run(backward=True)]


@dataclass
class _Module:
    name: str = ""
    parameters: list[str] = field(default_factory=list)
    children: dict[str, _Module] = field(default_factory=dict)

    def child(self, name: str) -> _Module:
        return self.children.setdefault(name, _Module(name))

    def run(self, *, backward: bool) -> Iterator[tuple[str, ...]]:
        yield tuple(self.parameters)
        for child in reversed(self.children.values()) if backward else self.children.values():
            yield from child.run(backward=backward)


@dataclass
class _Coordinator:
    sizes: dict[str, int]
    order: list[tuple[str, ...]]
    limits: Limits
    available: set[str]
    live: int = 0
    gathers: list[Gather] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = deque((name, step) for step, names in enumerate(self.order) for name in names)
        self.fetched_for: dict[str, float] = defaultdict(lambda: float("-inf"))
        self.traversed = [0, *accumulate(sum(self.sizes[name] for name in names) for names in self.order)]
        self.uses: dict[str, list[int]] = defaultdict(list)
        for step, names in enumerate(self.order):
            for name in names:
                self.uses[name].append(step)

    def run(self) -> None:
        half = len(self.order) // 2
        for step, names in enumerate(self.order):
            self._fetch(step, names, "forward" if step < half else "backward")
            self._release(step + 1, names)

    def _gather(self, names: list[str], when: Literal["forward", "backward"]) -> None:
        missing = tuple(name for name in names if name not in self.available)
        if missing:
            self.available.update(missing)
            self.live += sum(self.sizes[name] for name in missing)
            self.gathers.append((when, missing))

    def _fetch(self, step: int, names: tuple[str, ...], when: Literal["forward", "backward"]) -> None:
        self._gather(list(names), when)
        wanted = {name for name in names if self.fetched_for[name] < step}
        passed: set[str] = set()
        while self.queue and len(passed) < len(wanted):
            name, used = self.queue.popleft()
            self.fetched_for[name] = used
            passed.add(name)
        if self.limits.prefetch == 0:
            return
        room = min(self.limits.live - self.live, self.limits.prefetch)
        ahead: list[str] = []
        size = 0
        while self.queue and size < room:
            name, used = self.queue.popleft()
            self.fetched_for[name] = max(self.fetched_for[name], used)
            if name not in self.available and name not in ahead:
                ahead.append(name)
                size += self.sizes[name]
        self._gather(ahead, when)

    def _release(self, step: int, names: tuple[str, ...]) -> None:
        for name in names:
            stays = self.sizes[name] <= self.limits.persistence or self.fetched_for[name] > step or self._soon(name, step)
            if not stays and name in self.available:
                self.available.remove(name)
                self.live -= self.sizes[name]

    def _soon(self, name: str, step: int) -> bool:
        uses = self.uses[name]
        at = bisect_left(uses, step)
        return at < len(uses) and self.traversed[uses[at]] - self.traversed[step] < self.limits.reuse


def gathers(held: list[Tensor], limits: Limits, *, tied: bool = False) -> list[Gather]:
    """Return the gathers of one micro-batch, in order; small parameters are there already.

    >>> held = [Tensor("a.weight", "mixer", (8,)), Tensor("b.weight", "mixer", (8,)), Tensor("c.weight", "mixer", (1,))]
    >>> gathers(held, Limits(persistence=1, prefetch=0, live=100, reuse=0))
    [('forward', ('a.weight',)), ('forward', ('b.weight',)), ('backward', ('b.weight',)), ('backward', ('a.weight',))]
    """
    sizes = {x.name: x.elements for x in held}
    kept = {name for name, size in sizes.items() if size <= limits.persistence}
    coordinator = _Coordinator(sizes, modules(held, tied=tied), limits, kept)
    coordinator.run()
    return coordinator.gathers
