"""Which forward is computed a second time in the backward, layer by layer and operator by operator, by each framework's options.

Megatron: full (uniform: all layers, block: the first of each virtual stage) or selective (core attention). torchtitan: full, or
selective: every n-th layer, or by operator: all but the attention and every second product (pytorch/torchtitan,
torchtitan/distributed/activation_checkpoint.py). DeepSpeed: whole layers.

torch's checkpoints that are not reentrant (FSDP, torchtitan) stop as soon as everything that the backward needs is there again: a layer's
last product and residual are not repeated (torch/utils/checkpoint.py, set_checkpoint_early_stop; on by default). Megatron's and DeepSpeed's
own checkpoints run the whole layer.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tokenwire.model.architecture import Attention, Layer
from tokenwire.plan import PlanConfig
from tokenwire.timeline.operators import Operator

Rule = Literal["nothing", "core", "layer", "layer, stopped early", "operators"]
LAST = ("down", "experts down", "feed-forward residual")
"""Operators at the end of a layer that a stopped repetition leaves out."""


class Again(NamedTuple):
    """What of a layer's forward runs again: nothing, core attention, the whole layer, or chosen operators."""

    rule: Rule = "nothing"


def again(config: PlanConfig, layers: tuple[int, ...]) -> tuple[Again, ...]:
    """Return what is run again for each layer of a virtual stage.

    >>> from tokenwire.plan import read_plan
    >>> again(read_plan({"recompute_granularity": "selective"}), (0,))
    (Again(rule='core'),)
    """
    granularity = getattr(config, "recompute_granularity", None)
    if granularity == "selective":
        core = "core_attn" in getattr(config, "recompute_modules", ())
        return tuple(Again("core" if core else "nothing") for _ in layers)
    if granularity == "full":
        number = getattr(config, "recompute_num_layers", None) or 0
        block = getattr(config, "recompute_method", None) == "block"
        return tuple(Again("layer" if not block or i < number else "nothing") for i in range(len(layers)))
    mode = getattr(config, "activation_checkpoint_mode", "none")
    if mode == "selective":
        option = getattr(config, "selective_ac_option", "2")
        if option == "op":
            return tuple(Again("operators") for _ in layers)
        return tuple(Again("nothing" if layer % int(option) else "layer, stopped early") for layer in layers)
    if mode == "full":
        return tuple(Again("layer, stopped early") for _ in layers)
    return tuple(Again("layer" if getattr(config, "activation_checkpointing", False) else "nothing") for _ in layers)


def repeated(redo: Again, operator: Operator, layer: Layer) -> float:
    """Return the share of a forward operator that runs again in the backward."""
    if redo.rule == "core":
        return float(operator.part == "core")
    if redo.rule == "layer, stopped early":
        return float(operator.name not in LAST)
    if redo.rule == "operators":
        return _of_operators(operator, layer)
    return float(redo.rule == "layer")


def _of_operators(operator: Operator, layer: Layer) -> float:
    """Return the share where every second product is repeated, counted along the layer: keys, output, the second half of up."""
    if operator.part == "core" or operator.name in LAST:
        return 0.0
    if operator.name == "query, key, value" and isinstance(layer.mixer, Attention):
        return layer.mixer.kv_heads / (layer.mixer.heads + 2 * layer.mixer.kv_heads)
    return 0.5 if operator.name in ("up", "experts up") else 1.0
