"""Weights, gradients and optimizer state of torch's own frameworks and DeepSpeed.

torchtitan and FSDP2: everything in fp32, sharded; gradients are none from the start of a step until their layer has gone
backward. DDP: everything on every rank, with buckets beside the gradients. DeepSpeed: 16-bit parameters and a master copy, cut
by the stage of ZeRO.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.tensors import tensors
from tokenwire.plan.muon import SMALL, multiplies, stacks, uses_muon
from tokenwire.timeline.memory.adam import MOMENTS_OF
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.part import ALWAYS, Kind, Moment, Part

SOURCES = {
    "torchtitan": "torch 2.13, torch/distributed/fsdp/_fully_shard", "deepspeed": "Rajbhandari et al. 2020, section 3",
    "ddp": "torch 2.13, torch/nn/parallel/distributed.py",
}  # fmt: skip
STEPPING: tuple[Moment, ...] = ("between", "optimizer")


def torch_states(frame: Frame, name: str, elements: int, matrices: int) -> Iterator[Part]:
    """Yield what a rank keeps of ``elements`` parameters (those of tensor parallelism and experts cut already), ``matrices`` of them in products."""
    plan, training, P = frame.plan, frame.plan.training, elements
    cut = plan.config.sharding(plan, expert=name == "experts")
    # DeepSpeed keeps 16-bit parameters and a master copy; torchtitan and DDP keep fp32 parameters and no copy.
    copy = 4 if frame.dialect == "deepspeed" and training.precision != "fp32" else 0
    weight, gradient = frame.item if copy else 4, int(cut.gradient_bytes)
    if frame.dialect == "ddp" and frame.option("parameter_dtype") != "float32":
        weight = 2
    source = SOURCES[frame.dialect]
    # Gradients are set to none before a step: at its first loss none stands, of several micro-batches those of the earlier.
    held = ALWAYS if plan.micro_batches > 1 or frame.dialect == "deepspeed" else STEPPING
    state = (weight if frame.dialect == "ddp" else 4) * MOMENTS_OF[training.optimizer] + copy
    sizes: list[tuple[Kind, int, int, tuple[Moment, ...]]] = [
        ("weights", weight, cut.weights, ALWAYS),
        ("gradients", gradient, cut.gradients, held),
    ]
    if uses_muon(training):
        yield from _muon(frame, name, elements, matrices, weight)
    else:
        sizes.append(("optimizer", state, cut.optimizer, ALWAYS))
    off = plan.config.offload()
    offloaded: dict[str, float] = {"weights": off.weights, "gradients": off.gradients, "optimizer": off.optimizer}
    for kind, each, n, moments in sizes:
        share = 1 - offloaded[kind]
        what = f"{kind}, {name}" + (" on the GPU" if share < 1 else "")
        formula = (f"{each}·P/N" if n > 1 else f"{each}·P") + (f"·{share:g}" if share < 1 else "")
        yield frame.part(kind, what, formula, each * P / n * share, more={"P": P, "N": n}, moments=moments, source=source)
    if frame.dialect == "ddp" and training.optimizer != "dist_muon":
        P -= matrices if uses_muon(training) else 0
        if not frame.option("gradient_as_bucket_view") and plan.dp > 1:
            yield frame.part("buffers", "gradient buckets", f"{gradient}·P", gradient * elements, more={"P": elements}, source=source)
        yield frame.part("optimizer", "roots of the second moments, as all tensors step together", f"{weight}·P", weight * P, more={"P": P},
                         moments=("optimizer",), source="torch 2.13, torch/optim/adam.py, _multi_tensor_adam")  # fmt: skip


def _muon(frame: Frame, name: str, elements: int, matrices: int, weight: int) -> Iterator[Part]:
    """Yield one moment of the matrices and two of the rest: on every rank, or a rank's share, with the stacks that it is reduced in."""
    what, ranks = f"optimizer state, {name}, of Muon and of AdamW", frame.plan.dp
    if frame.plan.training.optimizer == "muon":
        yield frame.part("optimizer", what, f"{weight}·n+{2 * weight}·(P-n)", weight * (2 * elements - matrices), more={"P": elements, "n": matrices},
                         source="torch 2.13, torch/optim/_muon.py")  # fmt: skip
        return
    held = list(tensors(frame.arch))
    dealt = stacks(held, ranks)
    mine, whole = sum(stack.each * stack.matrix for stack in dealt), sum(stack.elements for stack in dealt)
    others = [tensor.elements for tensor in held if not multiplies(tensor)]
    rest = sum(n if n < SMALL else -(-n // ranks) for n in others)
    source = "karpathy/nanochat at 50413d2, nanochat/muon.py and adamw.py"
    yield frame.part("optimizer", f"{what}, a rank's share", f"{weight}·n+{2 * weight}·a", weight * (mine + 2 * rest), more={"n": mine, "a": rest},
                     source=source)  # fmt: skip
    yield frame.part("buffers", "gradients of Muon stacked by shape, a rank's share of them reduced and updated", f"{weight}·(S+2·n)",
                     weight * (whole + 2 * mine), more={"S": whole, "n": mine}, moments=("optimizer",), source=source)  # fmt: skip
