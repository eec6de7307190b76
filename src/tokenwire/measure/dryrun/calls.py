"""The calls that torch makes to a process group: what each operator is called here, and how large its full tensor is.

The full tensor is what all_gather puts out, what reduce_scatter and all_to_all take in; for everything else the tensor
itself. Operators: torch 2.13, torch/csrc/distributed/c10d/Ops.cpp (``c10d``) and Functional.cpp (``_c10d_functional``); products joined with a collective in
torch/distributed/_symmetric_memory (``symm_mem``), where the parts of a sum go to their owners, who add them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenwire.units import element_bytes

NAMESPACES = ("c10d", "_c10d_functional", "symm_mem")

DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
"""torch's names of dtypes and those of our tables."""


@dataclass(frozen=True)
class Operator:
    """``op`` by our name, ``full`` the argument that holds the full tensors, ``times_group`` whether it holds a shard."""

    op: str
    full: int
    times_group: bool = False


OPERATORS: dict[str, Operator] = {
    "allreduce_": Operator("all_reduce", 0),
    "allreduce_coalesced_": Operator("all_reduce", 0),
    "_allgather_base_": Operator("all_gather", 0),
    "allgather_": Operator("all_gather", 0),
    "allgather_coalesced_": Operator("all_gather", 0),
    "allgather_into_tensor_coalesced_": Operator("all_gather", 0),
    "_reduce_scatter_base_": Operator("reduce_scatter", 1),
    "reduce_scatter_": Operator("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": Operator("reduce_scatter", 1),
    "alltoall_base_": Operator("all_to_all", 1),
    "alltoall_": Operator("all_to_all", 1),
    "broadcast_": Operator("broadcast", 0),
    "reduce_": Operator("reduce", 0),
    "gather_": Operator("gather", 1, times_group=True),
    "scatter_": Operator("scatter", 0, times_group=True),
    "send": Operator("send", 0),
    "recv_": Operator("recv", 0),
    "recv_any_source_": Operator("recv", 0),
    "barrier": Operator("barrier", 0),
    "monitored_barrier_": Operator("barrier", 0),
    "all_reduce": Operator("all_reduce", 0),
    "all_reduce_": Operator("all_reduce", 0),
    "all_reduce_coalesced": Operator("all_reduce", 0),
    "all_reduce_coalesced_": Operator("all_reduce", 0),
    "all_gather_into_tensor": Operator("all_gather", 0, times_group=True),
    "all_gather_into_tensor_out": Operator("all_gather", 0, times_group=True),
    "all_gather_into_tensor_coalesced": Operator("all_gather", 0, times_group=True),
    "reduce_scatter_tensor": Operator("reduce_scatter", 0),
    "reduce_scatter_tensor_out": Operator("reduce_scatter", 0),
    "reduce_scatter_tensor_coalesced": Operator("reduce_scatter", 0),
    "all_to_all_single": Operator("all_to_all", 0),
    "broadcast": Operator("broadcast", 0),
    "isend": Operator("send", 0),
    "irecv": Operator("recv", 0),
    "fused_all_gather_matmul": Operator("all_gather", 0, times_group=True),
}
"""By the operator's name without namespace and overload."""

_LOCAL = {"wait_tensor", "check_for_nan", "_wrap_tensor_autograd"}
_PEER = {"send": 2, "recv_": 2, "isend": 1, "irecv": 1}


@dataclass(frozen=True)
class Call:
    """One call of one rank: ``members`` are the global ranks of its group, ``peer`` the global rank at the other end.

    ``elements`` is of the full tensor; several tensors of one coalesced call are counted together. ``site`` is the
    function that asked for it, ``group`` the framework's description of the process group.

    >>> Call("all_gather", (0, 1), 1024, "bf16", "forward").bytes
    2048
    """

    op: str
    members: tuple[int, ...]
    elements: int
    dtype: str
    phase: str
    peer: int | None = None
    site: str = ""
    group: str = ""

    @property
    def bytes(self) -> int:
        """Return the bytes of the full tensor."""
        return element_bytes(self.elements, self.dtype)


def read_calls(name: str, args: tuple[Any, ...], phase: str, site: str) -> Iterator[Call]:
    """Yield the calls that one operator with its arguments stands for; nothing for what stays on the rank.

    Raises ``KeyError`` for an operator that this table does not have, so that nothing is left out in silence.
    """
    if name in _LOCAL:
        return
    group = _group_of(args)
    members, label = _members(group)
    if name == "batch_p2p_ops":
        ops, peers, _, tensors = args[:4]
        for op, peer, tensor in zip(ops, peers, tensors, strict=True):
            side = "send" if "send" in op else "recv"
            yield Call(side, members, tensor.numel(), _dtype(tensor), phase, _global(members, peer), site, label)
        return
    if name == "fused_matmul_reduce_scatter":
        left, right = args[:2]
        product = left.numel() // left.shape[-1] * right.shape[-1]
        yield Call("all_to_all", members, product, _dtype(left), phase, None, site, label)
        return
    operator = OPERATORS[name]
    tensors = list(_flat(args[operator.full]))
    elements = sum(tensor.numel() for tensor in tensors) * (len(members) if operator.times_group else 1)
    peer = _global(members, args[_PEER[name]]) if name in _PEER else None
    dtype = _dtype(tensors[0]) if tensors else "uint8"
    yield Call(operator.op, members, 0 if operator.op == "barrier" else elements, dtype, phase, peer, site, label)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif value is not None:
        yield value


def _dtype(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return DTYPES.get(name, name)


def _global(members: tuple[int, ...], peer: int) -> int:
    return members[peer] if 0 <= peer < len(members) else peer


def _group_of(args: Iterable[Any]) -> Any:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.distributed_c10d import _resolve_process_group

    for arg in args:
        if isinstance(arg, ProcessGroup):
            return arg
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            return ProcessGroup.unbox(arg)
    # Functional collectives name the group by its registered name, which is the last string among the arguments.
    names = [arg for arg in args if isinstance(arg, str)]
    return _resolve_process_group(names[-1])


def _members(group: Any) -> tuple[tuple[int, ...], str]:
    from torch.distributed.distributed_c10d import get_process_group_ranks

    return tuple(get_process_group_ranks(group)), str(getattr(group, "group_desc", "") or "")
