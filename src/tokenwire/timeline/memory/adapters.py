"""What a layer keeps for its backward where its weights are frozen, and adapters beside them are trained.

A product whose weight has no gradient keeps no input; the first matrix of an adapter keeps its own, which beside a column-parallel product is
the norm's output as the product gathered it, and the second the r numbers between them. Attention keeps its output by itself.
TransformerEngine, pytorch/module/linear.py (requires_wgrad); NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/utils.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokenwire.model.adapters import Beside, beside, products
from tokenwire.model.architecture import Layer
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.saved import Saved, saved

SOURCE = "NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/utils.py, ParallelLinearAdapter"
DOWN = "input of the down-projection"


def kept_beside_frozen(frame: Frame, layer: Layer, everything: Iterable[Saved]) -> Iterator[Saved]:
    """Yield what a layer keeps: of what it would keep if all of it were trained, without the inputs of frozen products, and the adapters'."""
    if frame.arch.adapters is None:
        yield from everything
        return
    for one in everything:
        if one.kind == "projection":
            # Attention's own output, in 16 bits whatever the products are in.
            width = next(
                found.inputs
                for found in products(frame.arch.hidden_size, layer)
                if found.module == "linear_proj"
            )
            size = frame.tokens * width // frame.plan.tp * frame.item
            yield saved(frame, "projection", "attention's output", "T·w/t·e", size, one.source, w=width)
        elif one.kind != "norm out" and not one.what.endswith(DOWN):
            yield one
    for adapter in beside(frame.arch.hidden_size, layer, frame.arch.adapters):
        yield from _kept(frame, adapter)


def _kept(frame: Frame, adapter: Beside) -> Iterator[Saved]:
    module, rank, e, T = adapter.product.module, adapter.rank, frame.item, frame.tokens
    if module in ("linear_qkv", "linear_fc1"):
        size = T * frame.arch.hidden_size * e
        yield saved(
            frame, "norm out", f"adapter of {module}: its input, the norm's output", "T·h·e", size, SOURCE
        )
    elif module == "linear_fc2":
        f = adapter.product.inputs
        yield saved(
            frame,
            "mlp",
            f"adapter of {module}: its input",
            "T·f/t·e",
            T * f // frame.plan.tp * e,
            SOURCE,
            f=f,
        )
    yield saved(
        frame, "adapter", f"adapter of {module}: its r numbers", "T·r·e", T * rank * e, SOURCE, r=rank
    )
