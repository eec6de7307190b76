"""From a torchtitan section to a checked plan: the mesh, its groups, the layers of every stage.

Mesh (pp, dp_replicate, dp_shard, cp, tp), the last fastest; the experts' mesh of the same ranks is (pp, dp_replicate,
efsdp, ep, etp) (pytorch/torchtitan v0.2.2, torchtitan/distributed/parallel_dims.py, build_mesh). Parameters are sharded
over dp_shard and cp together ("fsdp"). Layers go to stages as pipeline_parallel.py, generate_llm_fqn_per_model_part,
deals them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, LatentAttention
from tokenwire.plan.compiled import broken_loss
from tokenwire.plan.described import uncut
from tokenwire.plan.grid import Grid
from tokenwire.plan.muon import uses_muon
from tokenwire.plan.plan import Plan, Stage
from tokenwire.plan.rules import Broken, Choice, divides_gpus, hold
from tokenwire.plan.torchtitan import (
    IN_ROUNDS,
    SINGLE_STAGE,
    SPLIT_BACKWARD,
    V_SHAPED,
    TorchtitanPlan,
    rounds,
)
from tokenwire.plan.training import TrainingConfig


def resolve(config: TorchtitanPlan, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
    """Return the plan of ``config`` on ``gpus`` ranks. Raises ``InputError`` for the first rule that is broken."""
    if config.data_parallel_shard_degree == 0:
        raise InputError("data_parallel_shard_degree = 0", where="[plan]", rule="must be -1 (what is left) or at least 1",
                         nearest="data_parallel_shard_degree = -1")  # fmt: skip
    hold(Choice(config, training, gpus), partial(broken, arch=arch))
    t, p, c, e = config.tp, config.pp, config.cp, config.ep
    replicate, shard = config.data_parallel_replicate_degree, config.shard_degree(gpus)
    dp, etp = replicate * shard, config.etp or 1
    experts_shard = shard * c * t // (etp * e)
    return Plan(
        config=config, training=training, world=gpus, tp=t, pp=p, cp=c, dp=dp, ep=e, etp=etp,
        edp=experts_shard * replicate, vpp=config.stages_per_rank(len(arch.layers)),
        micro_batches=training.global_batch // (training.micro_batch * dp),
        grid=Grid((("tp", t), ("cp", c), ("dp_shard", shard), ("dp_replicate", replicate), ("pp", p))),
        expert_grid=Grid((("etp", etp), ("ep", e), ("edp_shard", experts_shard), ("edp_replicate", replicate), ("pp", p))),
        stages=stages(config, len(arch.layers)), vocabulary_size=arch.vocabulary_size, sequence_parallel=t > 1,
        notes=tuple(_notes(config, training, arch, shard)),
    )  # fmt: skip


def layers_of_stages(count: int, layers: int, first: int = 1, last: int = 1) -> list[tuple[int, ...]] | None:
    """Return the layers of each of ``count`` virtual stages, or None where torchtitan refuses.

    Embedding counts as ``first`` layers, norm and head as ``last``; what does not divide goes to the first stages.

    >>> layers_of_stages(4, 8)
    [(0, 1), (2, 3, 4), (5, 6), (7,)]
    """
    if count == 1:
        return [tuple(range(layers))]
    places = layers + first + last
    each, extra = divmod(places, count)
    if each == 0 or first > each or last > each:
        return None
    out, at = [], 0
    for stage in range(count):
        take = each + (stage < extra) - (first if stage == 0 else last if stage == count - 1 else 0)
        out.append(tuple(range(at, min(at + take, layers))))
        at += take
    return out


def stages(config: TorchtitanPlan, layers: int) -> tuple[Stage, ...]:
    """Return the stages of a plan whose rules hold: looped schedules deal virtual stages round, V-shaped there and back."""
    p, v = config.pp, config.stages_per_rank(layers)
    dealt = layers_of_stages(p * v, layers, config.pipeline_parallel_first_stage_less_layers,
                             config.pipeline_parallel_last_stage_less_layers)  # fmt: skip
    assert dealt is not None
    return tuple(
        Stage(rank, tuple(dealt[index] for index in indices), 0 in indices, p * v - 1 in indices)
        for rank in range(p)
        for indices in [virtual_stages(config, rank, v)]
    )


def virtual_stages(config: TorchtitanPlan, rank: int, per_rank: int) -> tuple[int, ...]:
    """Return the indices of a pipeline rank's virtual stages (pipeline_module_split).

    >>> virtual_stages(TorchtitanPlan(pp=4, pipeline_parallel_schedule="Interleaved1F1B"), 1, 2)
    (1, 5)
    >>> virtual_stages(TorchtitanPlan(pp=4, pipeline_parallel_schedule="ZBVZeroBubble"), 1, 2)
    (1, 6)
    """
    if config.pipeline_parallel_schedule in V_SHAPED and per_rank == 2:
        return rank, 2 * config.pp - 1 - rank
    return tuple(rank + chunk * config.pp for chunk in range(per_rank))


def broken(choice: Choice, arch: Architecture) -> Iterator[Broken]:
    """Yield every rule that the choice breaks for this model, most basic first."""
    config = choice.config
    assert isinstance(config, TorchtitanPlan)
    yield from _world(choice, config)
    yield from _switches(config, arch)
    yield from _widths(config, arch)
    yield from uncut(choice, arch)
    yield from _experts(choice, config, arch)
    yield from _pipeline(config, arch)
    yield from _batches(choice, config, arch)
    yield from broken_loss(config, choice.training)
    if uses_muon(choice.training):
        yield Broken("training", "optimizer", "Muon needs whole matrices, which FSDP2 shards: how they are put together is not predicted here")
    if config.loss_implementation == "liger":
        yield Broken("plan", "loss_implementation", 'torchtitan has its own chunked loss: "torch" or "chunked"')


def _world(choice: Choice, c: TorchtitanPlan) -> Iterator[Broken]:
    model, replicate = c.tp * c.pp * c.cp, c.data_parallel_replicate_degree
    if choice.gpus % model:
        yield from divides_gpus(choice)
        return
    left = choice.gpus // model
    if left % replicate:
        yield Broken("plan", "data_parallel_replicate_degree", f"must divide the {left:,} data-parallel ranks")
    elif c.data_parallel_shard_degree > 0 and replicate * c.data_parallel_shard_degree != left:
        yield Broken("plan", "data_parallel_shard_degree",
                     f"dp_replicate·dp_shard = {replicate}·{c.data_parallel_shard_degree} must be the {left:,} ranks that "
                     "tp, pp and cp leave", (("plan", "data_parallel_replicate_degree"), ("cluster", "gpus")))  # fmt: skip
    elif replicate > 1 and c.shard_degree(choice.gpus) == 1 and c.cp == 1 and model > 1:
        yield Broken("plan", "data_parallel_replicate_degree", "replicas without sharding (DDP) go with no other parallelism")
    if c.enable_cpu_offload and c.shard_degree(choice.gpus) * c.cp == 1:
        yield Broken("plan", "enable_cpu_offload", "belongs to FSDP, and no rank shares parameters with another here")


def _switches(c: TorchtitanPlan, arch: Architecture) -> Iterator[Broken]:
    if c.set_all_reduce_hook and c.data_parallel_replicate_degree == 1:
        yield Broken("plan", "set_all_reduce_hook", "the hook sums over replicas: data_parallel_replicate_degree must be greater than 1")
    if not c.set_unshard_in_backward and (c.fsdp_wrap == "blocks" or arch.tied_embeddings or arch.embedding_norm):
        yield Broken("plan", "set_unshard_in_backward", "backward needs parameters that are gathered together with the embedding",
                     (("plan", "fsdp_wrap"),))  # fmt: skip


def _widths(c: TorchtitanPlan, arch: Architecture) -> Iterator[Broken]:
    if c.tp == 1:
        return
    for layer in arch.kinds:
        mixer, feed = layer.mixer, layer.feed_forward
        if isinstance(mixer, (Attention, LatentAttention)) and mixer.heads % c.tp:
            yield Broken("plan", "tp", f"tp must divide the {mixer.heads} attention heads")
        if isinstance(mixer, Attention) and mixer.kv_heads % c.tp:
            yield Broken("plan", "tp", f"tp must divide the {mixer.kv_heads} KV heads")
        if isinstance(feed, FeedForward) and feed.width % c.tp:
            yield Broken("plan", "tp", f"tp must divide the feed-forward width of {feed.width:,}")
    if c.joins_products and c.activation_checkpoint_mode != "none":
        yield Broken("plan", "enable_symm_mem_for_group", "what a compiled block with joined products runs again is not predicted here",
                     (("plan", "activation_checkpoint_mode"),))  # fmt: skip
    if c.joins_products and any(isinstance(layer.feed_forward, Experts) for layer in arch.layers):
        yield Broken("plan", "enable_symm_mem_for_group", "what the compiler joins in blocks with experts is not predicted here")
    if arch.positions == "learned":
        yield Broken("plan", "tp", "its plan for tensor parallelism has no place for learned positions")


def _experts(choice: Choice, c: TorchtitanPlan, arch: Architecture) -> Iterator[Broken]:
    counts = {layer.feed_forward.count for layer in arch.layers if isinstance(layer.feed_forward, Experts)}
    if c.ep > 1 and not counts:
        yield Broken("plan", "ep", "the model has no experts, so there is nothing to divide")
        return
    for count in sorted(counts):
        if count % c.ep:
            yield Broken("plan", "ep", f"ep must divide the {count} experts")
    etp = c.etp or 1
    if c.expert_parallel_comm_backend == "deepep" and (c.ep == 1 or etp > 1):
        need = "needs expert parallelism: ep must be greater than 1" if c.ep == 1 else "goes with no expert tensor parallelism: etp must be 1"
        yield Broken("plan", "expert_parallel_comm_backend", f"DeepEP {need}", (("plan", "ep" if c.ep == 1 else "etp"),))
    if c.ep > 1 and c.pp > 1 and c.pipeline_parallel_schedule == "DualPipeV" and c.activation_checkpoint_mode != "none":
        yield Broken("plan", "activation_checkpoint_mode", "DualPipeV with expert parallelism goes with no activation checkpoints")
    if c.ep > 1 and etp not in (1, c.tp):
        yield Broken("plan", "etp", f"must be 1 or tp = {c.tp}")
    if c.ep > 1 and c.shard_degree(choice.gpus) * c.cp == 1:
        yield Broken("plan", "ep", "expert parallelism goes with FSDP only: dp_shard·cp must be greater than 1",
                     (("plan", "cp"), ("cluster", "gpus")))  # fmt: skip
    shared = c.shard_degree(choice.gpus) * c.cp * c.tp
    if shared % (etp * c.ep):
        yield Broken("plan", "ep", f"etp·ep = {etp * c.ep:,} must divide dp_shard·cp·tp = {shared:,}")
        return
    if c.ep > 1:
        yield from _expert_shards(arch, c.ep, etp, shared // (etp * c.ep))


def _expert_shards(arch: Architecture, ep: int, etp: int, shards: int) -> Iterator[Broken]:
    # More ranks than experts: FSDP cuts dimension 1 of their weights, h rows or a part of the channels, and takes no uneven parts.
    for feed in {layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, Experts)}:
        width = feed.width // etp
        if shards * ep > feed.count and (arch.hidden_size % shards or width % shards):
            yield Broken("plan", "ep", f"each expert's weights of {width:,} and {arch.hidden_size:,} rows are cut over {shards:,} ranks, "
                         "which must divide both", (("cluster", "gpus"), ("plan", "etp")))  # fmt: skip


def _pipeline(c: TorchtitanPlan, arch: Architecture) -> Iterator[Broken]:
    L, schedule = len(arch.layers), c.pipeline_parallel_schedule
    if c.pp == 1:
        if c.vpp > 1:
            yield Broken("plan", "vpp", "virtual stages need a pipeline: pp must be greater than 1")
        return
    v, first, last = c.stages_per_rank(L), c.pipeline_parallel_first_stage_less_layers, c.pipeline_parallel_last_stage_less_layers
    key = "pipeline_parallel_layers_per_stage" if c.pipeline_parallel_layers_per_stage else "vpp"
    if c.pipeline_parallel_layers_per_stage and -(-(L + first + last) // c.pipeline_parallel_layers_per_stage) % c.pp:
        yield Broken("plan", key, f"the stages it makes of {L} layers, {first} for the embedding and {last} for the head must "
                     f"be a multiple of pp = {c.pp}")  # fmt: skip
        return
    if schedule in SINGLE_STAGE and v != 1:
        yield Broken("plan", key, f"{schedule} has one stage a rank")
    elif schedule in V_SHAPED and v != 2:
        yield Broken("plan", key, f"{schedule} has two stages a rank")
    elif schedule not in SINGLE_STAGE and v < 2:
        yield Broken("plan", key, f"{schedule} has at least two stages a rank")
    elif schedule not in SINGLE_STAGE and c.fsdp_reshard_after_forward == "always":
        yield Broken("plan", "fsdp_reshard_after_forward", f"how often {schedule} gathers units that are let go is not predicted "
                     "here: use default or never")  # fmt: skip
    elif schedule in SPLIT_BACKWARD and (c.blocks_compiled or c.joins_products):
        # torch/distributed/pipelining/schedules.py, _check_torch_compile_compatibility
        compiled = "enable_async_tensor_parallel" if c.joins_products else "compile_enable"
        yield Broken("plan", compiled, f"torch's {schedule} takes no stages with compiled blocks", (("plan", "pipeline_parallel_schedule"),))
    elif schedule in SPLIT_BACKWARD and c.activation_checkpoint_mode != "none" and c.tp * c.cp * c.ep > 1:
        yield Broken("plan", "activation_checkpoint_mode", f"{schedule} goes backward for inputs and for weights apart, and how often blocks then "
                     "run again is not predicted here", (("plan", "pipeline_parallel_schedule"),))  # fmt: skip
    elif v > 3:
        yield Broken("plan", key, "torch keeps 3 stages of a rank gathered at once; more are not predicted here")
    elif layers_of_stages(c.pp * v, L, first, last) is None:
        yield Broken("plan", "pp", f"{c.pp * v} stages of {L} layers ({first} less on the first, {last} less on the last) "
                     "would leave one without room")  # fmt: skip


def _batches(choice: Choice, c: TorchtitanPlan, arch: Architecture) -> Iterator[Broken]:
    t, model = choice.training, c.tp * c.pp * c.cp
    if choice.gpus % model:
        return
    dp = choice.gpus // model
    mend = (("training", "micro_batch"), ("cluster", "gpus"))
    if t.global_batch % (t.micro_batch * dp):
        yield Broken("training", "global_batch", f"micro_batch·dp = {t.micro_batch}·{dp} = {t.micro_batch * dp:,} must divide "
                     "the global batch", mend)  # fmt: skip
        return
    m, v, schedule = t.global_batch // (t.micro_batch * dp), c.stages_per_rank(len(arch.layers)), c.pipeline_parallel_schedule
    if c.pp > 1:
        least = {"1F1B": c.pp, "DualPipeV": c.pp * v}.get(schedule, 1)
        if m < least:
            yield Broken("training", "global_batch", f"{schedule} needs at least as many micro-batches ({m}) as stages ({least})", mend)
        elif schedule in IN_ROUNDS and m % rounds(c.pp, m):
            yield Broken("training", "global_batch", f"{schedule} needs its {m} micro-batches to be a multiple of its "
                         f"{rounds(c.pp, m)} rounds", mend)  # fmt: skip
    # seq_len_divisor of parallel_dims.py asks for the 2 of balanced context parallelism without it too; plain FSDP2 does not.
    parts = c.tp * c.cp * (2 if c.cp > 1 or c.fsdp_wrap == "torchtitan" else 1)
    if t.sequence_length % parts:
        yield Broken("training", "sequence_length", f"2·tp·cp = {parts} must divide the sequence length")


def _notes(c: TorchtitanPlan, training: TrainingConfig, arch: Architecture, shard: int) -> Iterator[str]:
    fsdp = shard * c.cp > 1
    if not fsdp and (c.tp > 1 or c.pp > 1) and c.param_dtype(training) != "fp32":
        yield "mixed precision needs FSDP here: with tp or pp alone torchtitan computes, and sends, in fp32"
    if c.joins_products:
        yield "asynchronous tensor parallelism sends the same bytes, each rank fetching from each other one, overlapped with the products"
    elif c.enable_async_tensor_parallel and c.tp > 1:
        yield ("enable_async_tensor_parallel changes nothing in torchtitan v0.2.2: nobody enables symmetric memory for the group, so the "
               "compiler joins nothing (pytorch/torchtitan #3869); enable_symm_mem_for_group = true says that somebody does")  # fmt: skip
    if c.tp > 1 and arch.vocabulary_size % c.tp:
        yield f"the vocabulary of {arch.vocabulary_size:,} does not divide by tp: ranks hold unequal parts; rows are tp rank 0's"
    if arch.tied_embeddings and c.pp > 1:
        yield ("torchtitan's own models refuse tied embeddings with a pipeline (models/qwen3/model/model.py, init_weights); torch runs such "
               "stages, and nothing keeps the two copies equal")  # fmt: skip
    if c.log_freq > 1:
        yield f"loss and tokens are summed over ranks on every {c.log_freq}th step only; those calls are not in the table"
