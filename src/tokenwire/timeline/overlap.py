"""What a rank waits for: the seconds of communication that no computation hides, by each framework's own flags.

Communication of c seconds in u pieces beside w seconds of work leaves max(c/u, c - w) exposed: the first piece (or the last) has
nothing to hide behind, and what is longer than the work stays over. Where it needs the node's NICs, it has the time in which nothing
else of the rank does: experts, pipeline and other groups that cross nodes are served first, as computation waits for them. A call that runs beside a product takes processors, memory and
power from it: the product lasts ``beside`` times the hidden seconds longer.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenwire.plan import Plan, PlanConfig
from tokenwire.timeline.communication import DATA, TENSOR, Overlap
from tokenwire.timeline.compute import Work


class Flags(NamedTuple):
    """What runs beside computation: tensor parallelism, sharded parameters, gradients at the end, gathered weights, experts."""

    tensor: bool
    sharded: bool
    gradients: bool
    weights: bool
    experts: bool = False


def flags(config: PlanConfig) -> Flags:
    """Return the flags of a plan, by the framework's own options and defaults.

    >>> from tokenwire.plan import read_plan
    >>> flags(read_plan({"overlap_grad_reduce": True}))
    Flags(tensor=False, sharded=True, gradients=True, weights=False, experts=False)
    """
    tensor = getattr(config, "tp_comm_overlap", False) or getattr(config, "enable_async_tensor_parallel", False)
    if config.dialect == "megatron":
        # Its experts' exchanges hide behind another micro-batch (combined_1f1b.py), with this flag, and by DualPipe.
        experts = getattr(config, "overlap_moe_expert_parallel_comm", False)
        return Flags(tensor, True, getattr(config, "overlap_grad_reduce", False), getattr(config, "overlap_param_gather", False), experts)
    if config.dialect == "deepspeed":
        asked = getattr(config, "overlap_comm", None)
        beside = asked if asked is not None else getattr(config, "zero_stage", 0) == 3
        return Flags(tensor, beside, beside, False)
    # FSDP2 prefetches the next unit and reduces behind the backward; DDP reduces bucket by bucket as gradients come.
    return Flags(tensor, True, True, False)


def blocking(config: PlanConfig, schedule: str) -> bool:
    """Return whether a stage waits until what it sends has arrived.

    Megatron does so but where its interleaved schedule overlaps (``overlap_p2p_comm``, on by default there:
    megatron/training/arguments.py, validate_args; p2p_communication.py waits for its requests). torch's schedules send beside.
    """
    return config.dialect == "megatron" and schedule != "interleaved-1f1b"


def exposed(c: float, work: float, pieces: int) -> float:
    """Return the seconds of ``c`` that ``work`` does not hide.

    >>> exposed(8.0, 10.0, 4), exposed(12.0, 10.0, 40), exposed(0.0, 1.0, 1)
    (2.0, 2.0, 0.0)
    """
    return max(c / max(pieces, 1), c - work) if c > 0 else 0.0


def waits(
    said: dict[Overlap, float], phase: str, work: Work, flag: Flags, tp: int, units: int, beside: float = 0.0, taken: float = 0.0,
    alone: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """Return the exposed seconds of one micro-batch of a virtual stage, forward or backward, by class.

    ``said`` are the seconds of ``communication.Said.action``, ``beside`` the accelerator's; ``taken`` are seconds in which the NICs
    that sharded parameters need are busy with others; ``alone`` is the share of passes that have no other beside them (``unpaired``).
    """
    out: dict[str, float] = {}
    products = {"forward": work.matmul.get("forward", 0.0)}
    products["backward"] = work.matmul.get("input", 0.0) + work.matmul.get("weight", 0.0)
    for who, seconds in said.items():
        name, product = who
        if name in DATA:
            continue
        if name in TENSOR and flag.tensor:
            spent = exposed(seconds, products[phase] * seconds / _all(said, TENSOR), tp)
        elif name == "ep" and flag.experts:
            spent = exposed(seconds, (work.forward + work.backward) / 2, units)
            spent += alone * (seconds - spent)
        elif product:
            spent = max(0.0, seconds - work.matmul.get(product, 0.0))
        else:
            spent = seconds
        spent += beside * (seconds - spent)
        out[name] = out.get(name, 0.0) + spent
    sharded = _all(said, DATA)
    if sharded:
        room = (work.forward if phase == "forward" else work.backward) + sum(out.values()) - taken
        spent = exposed(sharded, max(room, 0.0), units) if flag.sharded else sharded
        spent += beside * (sharded - spent)
        out |= {name: spent * seconds / sharded for (name, _), seconds in said.items() if name in DATA}
    return out


def unpaired(plan: Plan) -> float:
    """Return the share of a rank's forwards that run before its first backward, alone; as many backwards do at the end.

    With its experts' exchanges beside another micro-batch, Megatron runs a forward and a backward together, each hiding the other's
    exchanges (megatron/core/pipeline_parallel/combined_1f1b.py); the first forwards and the last backwards have no partner. Without a
    pipeline that is one of m; in the interleaved schedule (p-1) + (v-1)·p of m·v, the mean over ranks (schedules.py, get_pp_rank_microbatches).
    """
    first = (plan.pp - 1) + (plan.vpp - 1) * plan.pp if plan.pp > 1 else 1
    return min(1.0, first / (plan.micro_batches * (plan.vpp if plan.pp > 1 else 1)))


def _all(said: dict[Overlap, float], names: set[str]) -> float:
    return sum(seconds for who, seconds in said.items() if who.parallelism in names)
