"""fp8 with delayed scaling: the largest values of every tensor that was cast, agreed upon by all who share its scale.

Each product of a layer has a largest value for its input, its weight and its output (forward), and for the gradients of
output and input (backward); core attention counts as three products. A rank keeps them all in one list, over all of its
virtual stages, and reduces the whole list whenever an autocast region ends, and in the backward when the first product of
such a region is done. Products that are run again are each taken for the first, and reduce it each time.
Rules: TransformerEngine 2.18 (its kernels need an accelerator; what it decides in Python runs without them:
tests/step/test_megatron_fp8_source.py), pytorch/quantization.py (FP8GlobalStateManager), pytorch/module/base.py
(set_meta_tensor), pytorch/module/linear.py (_check_fp8_reduce_and_update), pytorch/distributed.py
(_CheckpointFunction); megatron-core 0.16.1 fp8_utils.py (get_fp8_context), transformer/transformer_block.py,
transformer/multi_token_prediction.py.

Other recipes scale by what they cast, and reduce nothing here. Weights that are themselves kept in fp8 need their largest
values again after the optimizer's step, since each rank has only a part of them: a number a weight, or one a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenwire.model.architecture import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Tensor,
    TokenMixer,
)
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.gradients import apart, chunk_tensors, local_elements, shard_group
from tokenwire.step.dialects.megatron.low_precision import BLOCK, kept_in_fp8, up
from tokenwire.step.dialects.megatron.recompute import recomputed_layers
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Operation, Phase

_MANAGER = "TransformerEngine pytorch/quantization.py FP8GlobalStateManager.reduce_and_update_fp8_tensors"
FORWARD, BACKWARD = 3, 2
"""Largest values a product: input, weight, output; gradients of output and of input."""


@dataclass(frozen=True)
class Module:
    """A module of Transformer Engine: ``products`` in it; ``kind`` is linear, grouped (of experts) or attention."""

    products: int
    kind: str = "linear"


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the reductions of largest values of a stage."""
    if sizes.plan.training.precision != "fp8":
        return
    if sizes.config.fp8_recipe == "delayed":
        yield from _lists(sizes, stage)
    if sizes.config.fp8_param_gather:
        yield from _weights(sizes, stage)


def modules(sizes: Sizes, layer: Layer) -> list[Module]:
    """Return the modules of a layer that cast to fp8, in the order in which they run."""
    return [*_mixer_modules(layer), *_feed_modules(sizes, layer.feed_forward)]


def _mixer_modules(layer: Layer) -> list[Module]:
    match layer.mixer:
        case None:
            return []
        case Attention():
            inputs = 1
        case LatentAttention() as latent:
            # Down and up for queries (or one product), down and up for keys and values.
            inputs = 4 if latent.q_lora_rank is not None else 3
        case _:
            return [Module(1), Module(1)]
    return [*[Module(1)] * inputs, Module(3, "attention"), Module(1)]


def _feed_modules(sizes: Sizes, feed: FeedForward | Experts | TokenMixer | None) -> list[Module]:
    if feed is None:
        return []
    if isinstance(feed, TokenMixer):
        return [Module(1)]
    pair = [Module(1), Module(1)]
    if isinstance(feed, FeedForward):
        return pair
    local = feed.count // sizes.plan.ep
    own = [Module(local, "grouped")] * 2 if sizes.config.moe_grouped_gemm else pair * local
    around = [Module(1)] if feed.latent_size is not None else []
    return [*(pair if feed.shared is not None else []), *around, *own, *around]


def _lists(z: Sizes, stage: Stage) -> Iterator[Operation]:
    products = sum(module.products for index in stage.layers for module in modules(z, z.arch.layers[index]))
    products += _next_layers(z, stage)  # the projection before each of them
    group = "tp_cp" if z.config.tp_only_amax_red else "tp_dp_cp"
    m = z.plan.micro_batches
    rows: tuple[tuple[Phase, int, int, str], ...] = (
        ("forward", _regions(z, stage), FORWARD, "after a forward"),
        ("backward", _regions_run_again(z, stage), FORWARD, "after a forward that was run again"),
        ("backward", _first_modules(z, stage), BACKWARD, "after a backward"),
    )
    for phase, times, each, when in rows:
        yield z.row(
            stage.index, "all_reduce", group, phase, times * m, each * products, f"largest values {when}",
            formula=f"{each}·products", values=f"{each}·{products:,}", dtype="fp32", parallelism="dp", source=_MANAGER,
            why="the next scale of every tensor in fp8 is to be the same on all ranks, so each takes the largest value of all",
        )  # fmt: skip


def _next_layers(z: Sizes, stage: Stage) -> int:
    return z.next_tokens if any(index >= z.own for index in stage.layers) else 0


def _regions(z: Sizes, stage: Stage) -> int:
    # A region around the layers of each virtual stage; each layer of multi-token prediction has one around the projection and
    # one around the layer, which do not count where gradients are off because it will run again.
    further = 2 * _next_layers(z, stage)
    return len(stage.chunks) + (0 if _further_run_again(z) else further)


def _further_run_again(z: Sizes) -> bool:
    return z.config.recompute_granularity == "full" and z.config.recompute_method == "uniform"


def _own(z: Sizes, layers: Iterable[int]) -> list[int]:
    return [index for index in layers if index < z.own]


def _checkpointed(z: Sizes, stage: Stage) -> Iterator[list[Module]]:
    """Yield the modules of each part of a micro-batch's forward that is run again, multi-token prediction apart."""
    config = z.config
    if config.recompute_granularity == "full":
        again = set(_own(z, recomputed_layers(z, stage)))
        each = config.recompute_num_layers or 1
        size = each if config.recompute_method == "uniform" else 1
        for chunk in stage.chunks:
            layers = [index for index in chunk if index in again]
            for start in range(0, len(layers), size):
                yield [x for index in layers[start : start + size] for x in modules(z, z.arch.layers[index])]
    elif config.recompute_granularity == "selective":
        for index in stage.layers:
            layer, chosen = z.arch.layers[index], config.recompute_modules
            feed = layer.feed_forward
            if isinstance(layer.mixer, LatentAttention) and "mla_up_proj" in chosen:
                yield [Module(1), Module(1)]
            all_of_it = "moe" in chosen if isinstance(feed, Experts) else "mlp" in chosen
            if feed is not None and all_of_it:
                yield _feed_modules(z, feed)
            elif isinstance(feed, Experts) and feed.shared is not None and "shared_experts" in chosen:
                yield _feed_modules(z, feed.shared)


def _regions_run_again(z: Sizes, stage: Stage) -> int:
    return sum(1 for _ in _checkpointed(z, stage))


def _first_modules(z: Sizes, stage: Stage) -> int:
    """Return how many modules take themselves for the first of a region in the backward of a micro-batch."""
    again = set(_own(z, recomputed_layers(z, stage)))
    plain = sum(any(index not in again for index in _own(z, chunk)) for chunk in stage.chunks)
    run_again = sum(_taken_for_first(part) for part in _checkpointed(z, stage))
    block = [one for layer in z.arch.next_token_block for one in modules(z, layer)]
    each = 1 + _taken_for_first(block) if _further_run_again(z) else 2
    return plain + run_again + _next_layers(z, stage) * each


def _taken_for_first(part: list[Module]) -> int:
    # A linear module that runs again leaves the mark of the first as it found it; a grouped one takes it away.
    found = 0
    for module in part:
        found += module.kind != "attention"
        if module.kind == "grouped":
            break
    return found


def _weights(z: Sizes, stage: Stage) -> Iterator[Operation]:
    recipe = z.config.fp8_recipe
    if recipe == "mxfp8":
        return  # gathered in bf16, and cast after that
    for expert in (False, True):
        kept = [
            tensor for chunk in range(len(stage.chunks)) for tensor, _, _ in chunk_tensors(z, stage, chunk)
            if apart(z, tensor) == expert and kept_in_fp8(z, tensor)
        ]  # fmt: skip
        elements = sum(_blocks(z, tensor) for tensor in kept) if recipe == "blockwise" else len(kept)
        formula = "blocks of 128·128" if recipe == "blockwise" else "weights in fp8"
        yield z.row(
            stage.index, "all_reduce", shard_group(z, expert), "optimizer", 1, elements,
            f"largest values of {'expert ' if expert else ''}weights", formula=formula, values=f"{elements:,}", dtype="fp32",
            parallelism="ep" if expert else "dp", source="TransformerEngine pytorch/tensor/utils.py cast_master_weights_to_fp8",
            why="each rank stepped a part of a weight; its scale is to fit all of it",
        )  # fmt: skip


def _blocks(z: Sizes, tensor: Tensor) -> int:
    # Float8BlockQuantizer.get_scale_shape: scales of a row of blocks are padded to a multiple of 4.
    inner = tensor.shape[-1]
    if tensor.split_dim == len(tensor.shape) - 1:
        inner //= z.plan.etp if tensor.part == "experts" else z.plan.tp
    rows = local_elements(z, tensor) // inner // (tensor.shape[0] // z.plan.ep if tensor.part == "experts" else 1)
    return -(-rows // BLOCK) * up(-(-inner // BLOCK), 4)
