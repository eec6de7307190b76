"""ZeRO-Offload and ZeRO-Infinity: what crosses the link to the host. P parameters of a stage, n ranks, e bytes of one, m micro-batches.

A gradient's part goes to the host as it is reduced and is added to on the GPU (with several micro-batches), then once in fp32 for
the optimizer. Updated parameters come back in 16 bits (``offload_param`` keeps them there); with ``offload_param`` each gather first
brings the rank's own part. Source: DeepSpeed 0.19, runtime/zero/stage3.py (partition_grads, _offload_grad_partition_at_boundary),
stage_1_and_2.py (async_accumulate_grad_in_cpu_via_gpu, async_inplace_copy_grad_to_fp32_buffer_from_gpu, step),
partition_parameters.py (all_gather_coalesced), swap_tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.step.dialects.deepspeed.sizes import Sizes
from tokenwire.step.operation import Operation
from tokenwire.step.transfer import Direction, Transfer
from tokenwire.units import ITEM_BYTES

ADAM_BYTES = 12
"""Master copy and two moments in fp32."""
ZERO = "DeepSpeed 0.19, runtime/zero"


def transfers(arch: Architecture, plan: Plan, calls: Iterable[Operation]) -> Iterator[Transfer]:
    """Yield what each stage's rank moves; ``calls`` is the step table."""
    z = Sizes.of(arch, plan)
    calls = list(calls)
    for stage in plan.stages:
        part = sum(x.elements for x in z.stage_tensors(stage)) / z.ranks
        yield from _weights(z, stage, part, [row for row in calls if row.stage == stage.index])
        yield from _optimizer(z, stage, part)


def _weights(z: Sizes, stage: Stage, part: float, calls: list[Operation]) -> Iterator[Transfer]:
    off, e, m = z.config.offload(), ITEM_BYTES[z.dtype], z.plan.micro_batches
    if not off.weights:
        return
    for phase in ("forward", "backward"):
        # Parameters in 16 bits or, quantised on the GPU, in 8: what moves is 16 bits. Second copies of hpZ stay on the GPU.
        gathers = [row for row in calls if row.op == "all_gather" and row.phase == phase and row.group in ("dp", "dp_cp")
                   and row.dtype in (z.dtype, "int8")]  # fmt: skip
        elements = sum(row.count * row.elements / row.group_size for row in gathers) if z.ranks > 1 else m * part
        what = "parameters of the next modules"
        source = f"{ZERO}/partition_parameters.py all_gather_coalesced"
        for direction in ("from_nvme", "to_gpu") if off.weights_on_nvme else ("to_gpu",):
            yield Transfer(stage.index, direction, phase, e * elements, what, True, "e·Σ gathered/n", f"{e:g}·{elements:,.0f}", source)
    if off.weights_on_nvme:
        yield Transfer(stage.index, "to_nvme", "optimizer", e * part, "updated parameters", False, "e·P/n", f"{e:g}·{part:,.0f}", ZERO)


def _optimizer(z: Sizes, stage: Stage, part: float) -> Iterator[Transfer]:
    off, e, m = z.config.offload(), ITEM_BYTES[z.dtype], z.plan.micro_batches
    mine = off.optimizer * part
    if not mine:
        return

    def row(direction: Direction, phase: str, each: float, what: str, formula: str, overlapped: bool = True) -> Transfer:
        return Transfer(stage.index, direction, phase, each * mine, what, overlapped, formula, f"{each:g}·{mine:,.0f}", ZERO)  # type: ignore[arg-type]

    overlaps = z.config.overlap_comm if z.config.overlap_comm is not None else z.config.zero_stage == 3
    times = m if z.config.zero_stage >= 2 else 1
    if m > 1 or z.config.zero_stage == 3:
        back = times if z.config.zero_stage == 3 else times - 1
        yield row("to_host", "backward", times * e, "gradients as they are reduced", "m·e·P/n", overlaps)
        if back:
            yield row("to_gpu", "backward", back * e, "gradients of earlier micro-batches, added to on the GPU", "m·e·P/n", overlaps)
    yield row("to_host", "backward", 4, "gradients for the optimizer, fp32", "4·P/n", overlaps)
    if off.optimizer_on_nvme:
        yield row("to_nvme", "backward", 4, "gradients for the optimizer, fp32", "4·P/n", overlaps)
        yield row("from_nvme", "optimizer", ADAM_BYTES + 4, "master copy, moments, gradients", "16·P/n", overlapped=False)
        yield row("to_nvme", "optimizer", ADAM_BYTES, "master copy and moments", "12·P/n", overlapped=False)
    if not off.weights:
        yield row("to_gpu", "optimizer", e, "updated parameters", "e·P/n", overlapped=False)
