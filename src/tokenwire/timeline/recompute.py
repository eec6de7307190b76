"""Which forward is computed a second time in the backward, layer by layer and operator by operator, by each framework's options.

Megatron: full (uniform: all layers, block: the first of each virtual stage) or selective, by the modules named
(megatron/core/transformer/transformer_config.py, recompute_modules). torchtitan: full, or
selective: every n-th layer, counted from 1 over all that a rank holds, or by operator: all but the attention and every second product
(pytorch/torchtitan v0.2.2, torchtitan/distributed/activation_checkpoint.py: _apply_layer_sac, _apply_op_sac). DeepSpeed: whole layers.

With ``early_stop`` (off by default there, torchtitan/config/job_config.py; torch's own default is on, torch/utils/checkpoint.py,
set_checkpoint_early_stop) a checkpoint stops as soon as everything that the backward needs is there again: a layer's last product and
residual are not repeated. Megatron's and DeepSpeed's own checkpoints run the whole layer.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tokenwire.model.architecture import Attention, Layer
from tokenwire.plan import PlanConfig
from tokenwire.plan.torchtitan import TorchtitanPlan
from tokenwire.timeline.kernels import Operator

Rule = Literal["nothing", "modules", "layer", "layer, stopped early", "operators", "operators, stopped early"]
SUM = "feed-forward residual"
LAST = ("down", "experts down", SUM)
"""Operators at the end of a layer that a stopped repetition leaves out."""


UP = ("query up", "key and value up", "rotary positions and joining")
"""What latent attention makes of its small vectors (multi_latent_attention.py, qkv_up_proj_and_rope_apply)."""


class Again(NamedTuple):
    """What of a layer's forward runs again: nothing, Megatron's ``modules``, the whole layer, or chosen operators."""

    rule: Rule = "nothing"
    modules: frozenset[str] = frozenset()


def again(config: PlanConfig, layers: tuple[int, ...], before: int = 0) -> tuple[Again, ...]:
    """Return what is run again for each layer of a virtual stage; the rank holds ``before`` layers in virtual stages ahead of it.

    >>> from tokenwire.plan import read_plan
    >>> again(read_plan({"recompute_granularity": "selective"}), (0,))
    (Again(rule='modules', modules=frozenset({'core_attn'})),)
    """
    granularity = getattr(config, "recompute_granularity", None)
    if granularity == "selective":
        modules = frozenset(getattr(config, "recompute_modules", ()))
        return (Again("modules", modules) if modules else Again(),) * len(layers)
    if granularity == "full":
        number = getattr(config, "recompute_num_layers", None) or 0
        block = getattr(config, "recompute_method", None) == "block"
        return tuple(Again("layer" if not block or i < number else "nothing") for i in range(len(layers)))
    if isinstance(config, TorchtitanPlan):
        return _torchtitan(config, len(layers), before)
    return (Again("layer" if getattr(config, "activation_checkpointing", False) else "nothing"),) * len(layers)


def _torchtitan(config: TorchtitanPlan, layers: int, before: int) -> tuple[Again, ...]:
    mode, option = config.activation_checkpoint_mode, config.selective_ac_option
    whole = Again("layer, stopped early" if config.early_stop else "layer")
    if mode != "selective":
        return (whole if mode == "full" else Again(),) * layers
    if option == "op":
        return (Again("operators, stopped early" if config.early_stop else "operators"),) * layers
    return tuple(Again() if place % int(option) else whole for place in range(before + 1, before + layers + 1))


def repeated(redo: Again, operator: Operator, layer: Layer) -> float:
    """Return the share of a forward operator that runs again in the backward."""
    if redo.rule == "modules":
        return float(any(_in_module(operator, module) for module in redo.modules))
    if redo.rule == "layer, stopped early":
        return float(operator.name not in LAST)
    if redo.rule in ("operators", "operators, stopped early"):
        if operator.name == SUM:
            return float(redo.rule == "operators")
        return _of_operators(operator, layer)
    return float(redo.rule == "layer")


def _in_module(operator: Operator, module: str) -> bool:
    """Return whether an operator belongs to one of Megatron's modules; ``mlp`` is of dense layers, ``moe`` all of experts."""
    name, part = operator.name, operator.part
    return {
        "core_attn": part == "core", "layernorm": name == "norm", "mla_up_proj": name in UP, "mlp": part == "feed_forward",
        "moe": part == "experts", "moe_act": name == "experts' activation",
        "shared_experts": part == "experts" and name in ("up", "activation", "down"),
    }.get(module, False)  # fmt: skip


def _of_operators(operator: Operator, layer: Layer) -> float:
    """Return the share where every second product is repeated, counted along the layer: keys, output, the second half of up."""
    if operator.part == "core" or operator.name in LAST:
        return 0.0
    if operator.name == "query, key, value" and isinstance(layer.mixer, Attention):
        return layer.mixer.kv_heads / (layer.mixer.heads + 2 * layer.mixer.kv_heads)
    return 0.5 if operator.name in ("up", "experts up") else 1.0
