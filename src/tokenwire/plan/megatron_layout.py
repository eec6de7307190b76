"""From a Megatron section to a checked plan: grids, groups, stages, padded vocabulary.

Rank order "tp-cp-ep-dp-pp"; experts are a second decomposition of the same ranks, etp, ep, edp, pp (megatron-core
0.16.1, parallel_state.py, initialize_model_parallel). With several distributed-optimizer instances the data-parallel
ranks are cut into that many consecutive parts.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial

from tokenwire.model.architecture import Architecture
from tokenwire.plan.grid import Grid
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.megatron_pipeline_layout import rows
from tokenwire.plan.megatron_rules import broken
from tokenwire.plan.megatron_stages import embedding_stages, stages
from tokenwire.plan.plan import Plan
from tokenwire.plan.rules import Choice, hold
from tokenwire.plan.training import TrainingConfig


def padded_vocabulary(vocabulary: int, divisible_by: int, tp: int) -> int:
    """Return the vocabulary with the rows that Megatron adds so that every rank holds as many.

    V' = ceil(V / (make_vocab_size_divisible_by·t))·make_vocab_size_divisible_by·t: Megatron-LM, megatron/training/
    tokenizer/tokenizer.py, _vocab_size_with_padding.

    >>> padded_vocabulary(50257, 128, 8)
    51200
    """
    multiple = divisible_by * tp
    return math.ceil(vocabulary / multiple) * multiple


def resolve(config: MegatronPlan, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
    """Return the plan of ``config`` on ``gpus`` ranks. Raises ``InputError`` for the first rule that is broken."""
    config, notes = as_megatron_runs_it(config)
    if arch.mtp_layers and config.mtp_num_layers is None:
        notes.append(f"the model's layers of multi-token prediction are left out: plan.mtp_num_layers = {arch.mtp_layers} has them")
    hold(Choice(config, training, gpus), partial(broken, arch=arch))
    t, p, c, e = config.tp, config.pp, config.cp, config.ep
    dp = gpus // (t * p * c)
    etp = config.expert_tp
    edp = gpus // (etp * e * p)
    return Plan(
        config=config, training=training, world=gpus, tp=t, pp=p, cp=c, dp=dp, ep=e, etp=etp, edp=edp, vpp=config.vpp,
        micro_batches=training.global_batch // (training.micro_batch * dp),
        grid=Grid((("tp", t), ("cp", c), *_data("dp", dp, config), ("pp", p))),
        expert_grid=Grid((("etp", etp), ("ep", e), *_data("edp", edp, config), ("pp", p))),
        stages=stages(config, len(arch.layers)),
        vocabulary_size=padded_vocabulary(arch.vocabulary_size, config.make_vocab_size_divisible_by, t),
        sequence_parallel=config.sequence_parallel,
        notes=tuple(notes),
        extra_groups=_hierarchical_context(config, dp),
        embedding_stages=embedding_stages(config, arch.tied_embeddings),
    )  # fmt: skip


def _hierarchical_context(config: MegatronPlan, dp: int) -> dict[str, tuple[Grid, tuple[str, ...]]]:
    # parallel_state.py, create_hierarchical_groups: the inner level has consecutive ranks of the context group.
    sizes = config.hierarchical_context_parallel_sizes
    if config.cp == 1 or "a2a+p2p" not in config.cp_comm_types or sizes is None:
        return {}
    grid = Grid((("tp", config.tp), ("cp_a2a", sizes[0]), ("cp_p2p", sizes[1]), ("dp", dp), ("pp", config.pp)))
    return {"cp_a2a": (grid, ("cp_a2a",)), "cp_p2p": (grid, ("cp_p2p",))}


def _data(name: str, size: int, config: MegatronPlan) -> tuple[tuple[str, int], ...]:
    instances = config.num_distributed_optimizer_instances
    if instances == 1:
        return ((name, size),)
    return ((f"{name}_shard", size // instances), (f"{name}_replicate", instances))


def as_megatron_runs_it(config: MegatronPlan) -> tuple[MegatronPlan, list[str]]:
    """Return a section with the options that Megatron changes by itself, and notes that say so."""
    # Megatron-LM, megatron/training/arguments.py, validate_args: options that it changes by itself.
    notes: list[str] = []
    changes: dict[str, object] = {}
    if config.sequence_parallel and config.tp == 1:
        changes["sequence_parallel"] = False
        notes.append("sequence_parallel is turned off: Megatron does so where tp = 1")
    if config.cp > 1 and not isinstance(config.cp_comm_type, str):
        notes.append("megatron-core up to 0.16.1 fails with an IndexError on cp_comm_type as a list (NVIDIA/Megatron-LM #3387)")
    if config.pipeline_model_parallel_layout is not None and config.vpp == 1:
        # TransformerConfig.__post_init__ takes the number of virtual stages from the layout.
        with contextlib.suppress(ValueError):
            changes["vpp"] = max(len(rows(config.pipeline_model_parallel_layout)) // config.pp, 1)
    return (config.model_copy(update=changes) if changes else config), notes
