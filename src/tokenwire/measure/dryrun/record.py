"""The recorder: one process in the place of rank r of a world of any size, and every collective that it calls for.

torch's ``fake`` process group answers collectives at once; everything else of the framework really runs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError, MissingExtra
from tokenwire.measure.dryrun.calls import NAMESPACES, Call, read_calls
from tokenwire.measure.dryrun.phase import Phase, call_site

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.plan import Plan

LARGEST_WORLD = 2**20
"""Ranks of the largest fake world: torch keeps a list of the members of every group."""


def require_torch(what: str = "dry runs") -> Any:
    """Return torch, or raise ``MissingExtra``."""
    try:
        import torch
        import torch.distributed
    except ImportError:
        raise MissingExtra(what, "measure") from None
    return torch


@contextmanager
def fake_world(rank: int, world: int) -> Iterator[None]:
    """Be rank ``rank`` of ``world`` on the fake backend inside the block.

    Raises ``InputError`` for a rank outside the world, ``MissingExtra`` without torch.
    """
    if not 1 <= world <= LARGEST_WORLD:
        raise InputError(f"world = {world}", rule=f"must be from 1 to {LARGEST_WORLD:,} ranks",
                         nearest=str(min(max(world, 1), LARGEST_WORLD)))  # fmt: skip
    if not 0 <= rank < world:
        raise InputError(f"rank = {rank}", rule=f"the world has ranks 0 to {world - 1:,}",
                         nearest=str(min(max(rank, 0), world - 1)))  # fmt: skip
    torch = require_torch()
    dist = torch.distributed
    if dist.is_initialized():
        raise InputError("a process group", rule="is initialized already: a dry run needs a process of its own")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        _forget_groups()


def _forget_groups() -> None:
    # DTensor keeps what it has worked out for a mesh, with its group names; an equal mesh of the next world has others.
    import torch
    from torch.distributed.tensor import DTensor, _redistribute

    propagator = DTensor._op_dispatcher.sharding_propagator
    for cached in (propagator.propagate_op_sharding, _redistribute._gen_transform_infos):
        getattr(getattr(cached, "cache", cached), "cache_clear", lambda: None)()
    getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()


class Recorder:
    """Notes every call to a process group inside a ``with`` block, in order, in ``calls``.

    ``phase`` follows the step by itself; ``with recorder.phase.during("loss"):`` says it.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.phase = Phase()

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record inside the block."""
        with self.phase.watching(), _mode(self):
            yield self

    def note(self, name: str, args: tuple[Any, ...]) -> None:
        """Note one operator with its arguments."""
        phase = self.phase.of(args) or self.phase.now()
        site = call_site(sys._getframe(1))
        self.calls.extend(read_calls(name, args, phase, site))


def _mode(recorder: Recorder) -> Any:
    require_torch()
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            # Compiled parts are seen when they run, not while they are made.
            return True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            # DTensor comes first: the collectives that it decides on come here again, as plain tensors.
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented
            if getattr(func, "namespace", "") in NAMESPACES:
                recorder.note(func._schema.name.split("::")[1], tuple(args))
            return func(*args, **(kwargs or {}))

    return Mode()


COLUMNS = ("op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes", "peer", "site")
"""The columns of a recording; those that the step table also has mean the same."""


def table(calls: Iterable[Call], plan: Plan | None = None, rank: int = 0) -> pl.DataFrame:
    """Return a row a kind of call, in order of the first one; groups of one send nothing and are left out.

    With a plan groups have the plan's names and ``peer`` is a pipeline stage; without, groups are described by the
    framework's own name or by their ranks, and ``peer`` is a rank.
    """
    import polars as pl

    names = group_names(plan, rank) if plan is not None else {}
    counted = Counter(call for call in calls if len(call.members) > 1 and (call.elements or call.op == "barrier"))
    whole = {"group_size", "count", "elements", "bytes", "peer"}
    rows = [
        (call.op, names.get(tuple(sorted(call.members))) or described(call), len(call.members), call.phase, count,
         call.elements, call.dtype, call.bytes, _peer(call, plan), call.site)
        for call, count in counted.items()
    ]  # fmt: skip
    return pl.DataFrame(rows, schema={c: pl.Int64 if c in whole else pl.String for c in COLUMNS}, orient="row")


def _peer(call: Call, plan: Plan | None) -> int | None:
    return call.peer if plan is None or call.peer is None else plan.stage_of(call.peer)


_PREFERRED = (
    "tp", "cp", "dp", "dp_cp", "ep", "etp", "edp", "dp_shard", "dp_replicate", "fsdp", "pp", "world",
)  # fmt: skip


def group_names(plan: Plan, rank: int) -> dict[tuple[int, ...], str]:
    """Return the plan's name of every group that ``rank`` is in, by its members; the first of several names."""
    names: dict[tuple[int, ...], str] = {}
    for name in dict.fromkeys((*_PREFERRED, *plan.group_names())):
        names.setdefault(tuple(int(member) for member in plan.members(name, rank)), name)
    return names


def described(call: Call) -> str:
    """Return words for a group that no plan names: the framework's own, or its ranks.

    >>> described(Call("barrier", (0, 8, 16, 24), 0, "uint8", "setup"))
    'ranks 0:32:8'
    >>> described(Call("barrier", (0, 1, 5), 0, "uint8", "setup", group="mesh_tp"))
    'tp'
    """
    if call.group and call.group not in ("undefined", "default_pg"):
        return call.group.removeprefix("mesh_")
    if call.group == "default_pg":
        return "world"
    members = call.members
    steps = {b - a for a, b in pairwise(members)}
    if len(steps) == 1:
        step = steps.pop()
        return f"ranks {members[0]}:{members[-1] + step}:{step}"
    return "ranks " + ",".join(map(str, members[:8])) + (",..." if len(members) > 8 else "")
