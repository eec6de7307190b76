"""Activation recomputation: which forward communication of a stage is said a second time, in the backward.

Rules: megatron-core 0.16.1, transformer/transformer_block.py, TransformerBlock._checkpointed_forward (full), transformer/
transformer_layer.py and moe/moe_layer.py (selective, ``recompute_modules``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from tokenwire.model.architecture import Experts
from tokenwire.plan import Stage

if TYPE_CHECKING:
    from tokenwire.step.dialects.megatron.sizes import Sizes


def recomputed_layers(sizes: Sizes, stage: Stage) -> tuple[int, ...]:
    """Return the layers of a stage whose whole forward is run again."""
    config = sizes.config
    if config.recompute_granularity != "full":
        return ()
    if config.recompute_method == "uniform":
        return stage.layers
    # block: the first layers of each virtual stage.
    number = config.recompute_num_layers or 0
    return tuple(layer for chunk in stage.chunks for layer in chunk[:number] if layer < sizes.own)


def checkpoints(sizes: Sizes, stage: Stage) -> int:
    """Return how many inputs a stage keeps for full recomputation: one a group of layers (uniform) or a layer (block)."""
    config = sizes.config
    if config.recompute_granularity != "full":
        return 0
    number = config.recompute_num_layers or 1
    if config.recompute_method == "uniform":
        return sum(-(-len(chunk) // number) for chunk in stage.chunks)
    return len(recomputed_layers(sizes, stage))


def recomputed_blocks(sizes: Sizes, stage: Stage, among: Collection[int]) -> Counter[str]:
    """Return how many blocks of each name (``tensor_parallel.blocks_of``) run their forward again, of the layers ``among``."""
    from tokenwire.step.dialects.megatron.tensor_parallel import blocks_of

    again: Counter[str] = Counter()
    for index in (layer for layer in recomputed_layers(sizes, stage) if layer in among):
        again.update(blocks_of(sizes.arch.layers[index]))
    config = sizes.config
    if config.recompute_granularity == "selective":
        for index in among:
            feed = sizes.arch.layers[index].feed_forward
            if feed is None:
                continue
            if isinstance(feed, Experts):
                if feed.shared is not None:
                    # Each is a checkpoint of its own: with both the shared experts are recomputed inside a recomputation.
                    again["shared experts"] += ("moe" in config.recompute_modules) + ("shared_experts" in config.recompute_modules)
            elif "mlp" in config.recompute_modules:
                again["feed-forward"] += 1
    return again


def recomputed_expert_layers(sizes: Sizes, stage: Stage) -> int:
    """Return how many layers of experts dispatch and combine their tokens a second time."""
    config, layers = sizes.config, sizes.arch.layers
    if config.recompute_granularity == "selective":
        chosen = stage.layers if "moe" in config.recompute_modules else ()
    else:
        chosen = recomputed_layers(sizes, stage)
    return sum(isinstance(layers[index].feed_forward, Experts) for index in chosen)


def recomputed_attention_layers(sizes: Sizes, stage: Stage) -> tuple[int, ...]:
    """Return the layers whose core attention (and with it its context parallelism) is run again."""
    config = sizes.config
    if config.recompute_granularity == "selective" and "core_attn" in config.recompute_modules:
        return stage.layers
    return recomputed_layers(sizes, stage)
