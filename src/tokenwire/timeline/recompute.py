"""Which forward is computed a second time in the backward, layer by layer, by each framework's options.

Megatron: full (uniform: all layers, block: the first of each virtual stage) or selective (core attention). torchtitan: full, or
selective: every n-th layer, or by operator, where every second product is computed again (half a forward, assumed).
DeepSpeed: whole layers.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenwire.plan import PlanConfig


class Again(NamedTuple):
    """Share of a layer's forward that runs again (0 to 1), and whether its core attention does."""

    whole: float = 0.0
    core: bool = False


def again(config: PlanConfig, layers: tuple[int, ...]) -> tuple[Again, ...]:
    """Return what is run again for each layer of a virtual stage.

    >>> from tokenwire.plan import read_plan
    >>> again(read_plan({"recompute_granularity": "selective"}), (0,))
    (Again(whole=0.0, core=True),)
    """
    granularity = getattr(config, "recompute_granularity", None)
    if granularity == "selective":
        core = "core_attn" in getattr(config, "recompute_modules", ())
        return tuple(Again(core=core) for _ in layers)
    if granularity == "full":
        number = getattr(config, "recompute_num_layers", None) or 0
        block = getattr(config, "recompute_method", None) == "block"
        return tuple(Again(whole=float(not block or i < number)) for i in range(len(layers)))
    mode = getattr(config, "activation_checkpoint_mode", "none")
    if mode == "selective":
        option = getattr(config, "selective_ac_option", "2")
        if option == "op":
            return tuple(Again(whole=0.5) for _ in layers)
        return tuple(Again(whole=float(layer % int(option) == 0)) for layer in layers)
    whole = mode == "full" or getattr(config, "activation_checkpointing", False)
    return tuple(Again(whole=float(whole)) for _ in layers)
