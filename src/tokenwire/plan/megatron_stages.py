"""Which layers stand on which stage of Megatron's pipeline, and on which virtual stage.

Rules: megatron-core 0.16.1, transformer/transformer_block.py, get_num_layers_to_build, transformer/
transformer_layer.py, get_transformer_layer_offset, and transformer/multi_token_prediction.py, mtp_on_this_rank; Megatron-LM
0.16.1, pretrain_gpt.py, get_embedding_ranks.
"""

from __future__ import annotations

from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.megatron_pipeline_layout import rows
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
    left = layers - (first or 0) - (last or 0)
    stages = p - (first is not None) - (last is not None)
    # Either there are stages between and layers for them, or neither.
    if left < 0 or stages < 0 or bool(left) != bool(stages) or (stages and left % stages):
        return None
    per_rank = left // stages if stages else 0
    head, tail = ([] if first is None else [first]), ([] if last is None else [last])
    return [*head, *[per_rank] * stages, *tail]


def chunk_sizes(config: MegatronPlan, layers: int) -> list[list[int]]:
    """Return how many layers each virtual stage of each pipeline rank has, for a plan whose rules hold.

    >>> chunk_sizes(MegatronPlan(pp=2, vpp=2, pipeline_model_parallel_layout="Et|tt|t|ttL"), 6)
    [[1, 1], [2, 2]]
    """
    p, v = config.pp, config.vpp
    if config.pipeline_model_parallel_layout is not None:
        said = [row.count("decoder") for row in rows(config.pipeline_model_parallel_layout)]
        return [said[rank::p] for rank in range(p)]
    per_rank = layers_of_ranks(config, layers)
    assert per_rank is not None
    sizes = [[per_rank[rank] // v] * v for rank in range(p)]
    sizes[0][0] -= config.account_for_embedding_in_pipeline_split
    sizes[-1][-1] -= config.account_for_loss_in_pipeline_split
    return sizes


def next_tokens_rank(config: MegatronPlan) -> int:
    """Return the pipeline rank that holds the layers of multi-token prediction (always on its last virtual stage)."""
    if config.pipeline_model_parallel_layout is None:
        return config.pp - 1
    return next(i for i, row in enumerate(rows(config.pipeline_model_parallel_layout)) if row.count("mtp")) % config.pp


def stages(config: MegatronPlan, layers: int) -> tuple[Stage, ...]:
    """Return the stages of a plan whose rules hold.

    >>> [stage.chunks for stage in stages(MegatronPlan(pp=2, vpp=2), 8)]
    [((0, 1), (4, 5)), ((2, 3), (6, 7))]
    """
    p, sizes = config.pp, chunk_sizes(config, layers)
    chunks: list[list[tuple[int, ...]]] = [[] for _ in range(p)]
    at = 0
    # Virtual stages are filled in the order in which a micro-batch meets them: chunk 0 of every rank, then chunk 1 ...
    for chunk in range(len(sizes[0])):
        for rank in range(p):
            chunks[rank].append(tuple(range(at, at + sizes[rank][chunk])))
            at += sizes[rank][chunk]
    further = next_tokens_rank(config) if config.mtp_num_layers else None
    return tuple(Stage(i, tuple(chunks[i]), i == 0, i == p - 1, i == further) for i in range(p))


def embedding_stages(config: MegatronPlan, tied: bool) -> tuple[int, ...]:
    """Return the stages that hold a copy of the embedding, whose gradients are added up.

    >>> embedding_stages(MegatronPlan(pp=4), tied=True), embedding_stages(MegatronPlan(pp=4, mtp_num_layers=1), tied=False)
    ((0, 3), (0, 3))
    """
    holding = {0} | ({config.pp - 1} if tied else set()) | ({next_tokens_rank(config)} if config.mtp_num_layers else set())
    return tuple(sorted(holding)) if len(holding) > 1 else ()
