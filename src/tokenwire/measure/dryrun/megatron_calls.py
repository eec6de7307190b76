"""Noting every call to a process group: what it is, how much, in which phase, on which ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.plan import Plan
from tokenwire.units import element_bytes

if TYPE_CHECKING:
    import polars as pl

_DTYPE_NAMES = {
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32", "torch.float64": "fp64",
    "torch.int64": "int64", "torch.int32": "int32", "torch.uint8": "uint8", "torch.bool": "bool",
}  # fmt: skip

# c10d operator -> our name, and which argument has the tensors that are the full tensor of the call.
_OPS: dict[str, tuple[str, int]] = {
    "allreduce_": ("all_reduce", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_base_": ("all_to_all", 1),
    "alltoall_": ("all_to_all", 1),
    "broadcast_": ("broadcast", 0),
    "send": ("send", 0),
    "recv_": ("recv", 0),
    "barrier": ("barrier", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
}


@dataclass(frozen=True)
class Call:
    """One call: ``elements`` of the full tensor, ``members`` the ranks of its group, ``tag`` the phase it was made in."""

    op: str
    members: tuple[int, ...]
    elements: int
    dtype: str
    phase: str


class Phase:
    """The phase that the step is in, set from around the framework's functions."""

    def __init__(self) -> None:
        self.name = "setup"
        # Phases of sends and receives: by address of the tensor, or in the order in which they come.
        self.of_tensor: dict[int, str] = {}
        self.coming: list[str] = []

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Set the phase inside the block."""
        before, self.name = self.name, name
        try:
            yield
        finally:
            self.name = before


def recorder(phase: Phase, calls: list[Call], plan: Plan, rank: int) -> Any:
    """Return a dispatch mode that appends every c10d call to ``calls``.

    A send or receive on the default group is of its two ends only: it counts as of the context-parallel group that has both.
    """
    import torch
    from torch.distributed.distributed_c10d import ProcessGroup, get_process_group_ranks
    from torch.utils._python_dispatch import TorchDispatchMode

    context = tuple(int(member) for member in plan.members("cp", rank))

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "namespace", "") == "c10d":
                name = func.name().split("::")[1].split(".")[0]
                op, at = _OPS[name]
                group = next(
                    ProcessGroup.unbox(a) for a in args if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type())
                )
                ranks = tuple(get_process_group_ranks(group))
                coalesced = "coalesced" in name
                for tensors in _tensors(args[at], coalesced):
                    elements = sum(t.numel() for t in tensors)
                    first = tensors[0]
                    when = phase.name
                    if op in ("send", "recv") and len(ranks) == plan.world and args[2] in context:
                        ranks = context
                    elif op in ("send", "recv"):
                        when = phase.coming.pop(0) if phase.coming else phase.of_tensor.get(first.data_ptr(), when)
                    calls.append(Call(op, ranks, elements, _DTYPE_NAMES[str(first.dtype)], when))
                if name == "allgather_" and len({part.shape for parts in args[0] for part in parts}) > 1:
                    # The fake group copies the input to every output, which unequal parts cannot take.
                    outputs = [[torch.empty_like(own) for _ in parts] for parts, own in zip(args[0], args[1], strict=True)]
                    args = (outputs, *args[1:])
            return func(*args, **(kwargs or {}))

    return Recorder()


def _tensors(argument: Any, coalesced: bool) -> list[list[Any]]:
    import torch

    if isinstance(argument, torch.Tensor):
        return [[argument]]
    flat: list[Any] = []
    for item in argument:
        flat.extend(item if isinstance(item, (list, tuple)) else [item])
    return [[tensor] for tensor in flat] if coalesced else [flat]


def table(calls: Iterable[Call], plan: Plan, rank: int) -> pl.DataFrame:
    """Return calls of one kind as a row each, groups named as in the plan; groups of one are left out."""
    import polars as pl

    counts = Counter(call for call in calls if len(call.members) > 1 and (call.elements or call.op == "barrier"))
    names = _group_names(plan, rank)
    rows = [
        (call.op, names.get(tuple(sorted(call.members)), "?"), len(call.members), call.phase, count, call.elements, call.dtype,
         element_bytes(call.elements, call.dtype))
        for call, count in counts.items()
    ]  # fmt: skip
    columns = ("op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes")
    whole = {"group_size", "count", "elements", "bytes"}
    return pl.DataFrame(rows, schema={c: pl.Int64 if c in whole else pl.String for c in columns}, orient="row")


def _group_names(plan: Plan, rank: int) -> dict[tuple[int, ...], str]:
    names: dict[tuple[int, ...], str] = {}
    preferred = ("tp", "pp", "dp", "dp_cp", "cp", "ep", "edp", "etp", "tp_ep", "mp", "embedding", "world")
    for name in dict.fromkeys((*preferred, *plan.group_names())):
        members = tuple(int(r) for r in plan.members(name, rank))
        names.setdefault(members, name)
    return names
