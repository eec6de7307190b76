"""Which layers stand on which stage of Megatron's pipeline, and on which virtual stage.

Rules: megatron-core 0.16.1, transformer/transformer_block.py, get_num_layers_to_build, and transformer/
transformer_layer.py, get_transformer_layer_offset.
"""

from __future__ import annotations

from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.plan import Stage


def layers_of_ranks(config: MegatronPlan, layers: int) -> list[int] | None:
    """Return how many layers (places for embedding and loss included) each pipeline rank gets, or None if it fails.

    >>> layers_of_ranks(MegatronPlan(pp=4, decoder_first_pipeline_num_layers=1), 7)
    [1, 2, 2, 2]
    """
    p, first, last = config.pp, config.decoder_first_pipeline_num_layers, config.decoder_last_pipeline_num_layers
    if first is None and last is None:
        places = layers + config.account_for_embedding_in_pipeline_split + config.account_for_loss_in_pipeline_split
        return [places // p] * p if places % p == 0 else None
    if p == 1:
        return [layers]
    left = layers - (first or 0) - (last or 0)
    stages = p - (first is not None) - (last is not None)
    if left < 0 or (stages and left % stages) or (not stages and left):
        return None
    per_rank = left // stages if stages else 0
    head, tail = ([] if first is None else [first]), ([] if last is None else [last])
    return [*head, *[per_rank] * stages, *tail]


def stages(config: MegatronPlan, layers: int) -> tuple[Stage, ...]:
    """Return the stages of a plan whose rules hold.

    >>> [stage.chunks for stage in stages(MegatronPlan(pp=2, vpp=2), 8)]
    [((0, 1), (4, 5)), ((2, 3), (6, 7))]
    """
    per_rank = layers_of_ranks(config, layers)
    assert per_rank is not None
    p, v = config.pp, config.vpp
    chunks: list[list[tuple[int, ...]]] = [[] for _ in range(p)]
    at = 0
    # Virtual stages are filled in the order in which a micro-batch meets them: chunk 0 of every rank, then chunk 1 ...
    for chunk in range(v):
        for rank in range(p):
            size = per_rank[rank] // v
            if config.account_for_embedding_in_pipeline_split and rank == 0 and chunk == 0:
                size -= 1
            if config.account_for_loss_in_pipeline_split and rank == p - 1 and chunk == v - 1:
                size -= 1
            chunks[rank].append(tuple(range(at, at + size)))
            at += size
    return tuple(Stage(i, tuple(chunks[i]), i == 0, i == p - 1) for i in range(p))
