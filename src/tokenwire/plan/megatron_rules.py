"""What Megatron refuses, in its order: each rule with its key and the keys that can mend it.

Rules: megatron-core 0.16.1, transformer/transformer_config.py (TransformerConfig.__post_init__), parallel_state.py
(initialize_model_parallel), pipeline_parallel/schedules.py, transformer/attention.py; Megatron-LM, megatron/training/
arguments.py (validate_args) and megatron/core/num_microbatches_calculator.py. ``megatron_options`` has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    StateSpace,
)
from tokenwire.plan.described import uncut
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.megatron_options import options
from tokenwire.plan.megatron_pipeline_layout import broken_rules, even, rows
from tokenwire.plan.megatron_stages import layers_of_ranks
from tokenwire.plan.rules import Broken, Choice, divides_gpus


def broken(choice: Choice, arch: Architecture) -> Iterator[Broken]:
    """Yield every rule that the choice breaks for this model, most basic first."""
    config = choice.config
    assert isinstance(config, MegatronPlan)
    shape = [*_world(choice, config), *_widths(config, arch), *uncut(choice, arch), *_experts(choice, config, arch), *_layers(config, arch)]
    yield from shape
    yield from _batches(choice, config)
    if not shape:
        # These ask what stands on which stage.
        yield from options(choice, config, arch)


def _world(choice: Choice, c: MegatronPlan) -> Iterator[Broken]:
    model = c.tp * c.pp * c.cp
    if choice.gpus % model:
        yield from divides_gpus(choice)
        return
    instances = c.num_distributed_optimizer_instances
    dp = choice.gpus // model
    if instances > 1 and not c.use_distributed_optimizer:
        yield Broken("plan", "num_distributed_optimizer_instances", "needs use_distributed_optimizer = true")
    if dp % instances:
        yield Broken("plan", "num_distributed_optimizer_instances", f"must divide the {dp:,} data-parallel ranks")


def _widths(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    if c.tp == 1:
        return
    for layer in arch.kinds:
        mixer, feed = layer.mixer, layer.feed_forward
        if isinstance(mixer, (Attention, LatentAttention)) and mixer.heads % c.tp:
            yield Broken("plan", "tp", f"tp must divide the {mixer.heads} attention heads")
        if isinstance(mixer, Attention) and mixer.kv_heads % c.tp and c.tp % mixer.kv_heads:
            yield Broken("plan", "tp", f"tp must divide the {mixer.kv_heads} KV heads, or be a multiple of them")
        if isinstance(mixer, StateSpace) and mixer.version == 1:
            yield Broken("plan", "tp", "must be 1: state-space layers of Mamba 1 are not split (Megatron's mixer is Mamba 2)")
        elif isinstance(mixer, StateSpace) and (mixer.heads % c.tp or mixer.inner_size % c.tp or mixer.groups % c.tp):
            yield Broken("plan", "tp", f"tp must divide the {mixer.heads} state-space heads, the inner size of "
                         f"{mixer.inner_size} and the {mixer.groups} groups")  # fmt: skip
        if isinstance(feed, FeedForward) and feed.width % c.tp:
            yield Broken("plan", "tp", f"tp must divide the feed-forward width of {feed.width:,}")
        if isinstance(feed, Experts) and feed.width % c.expert_tp:
            yield Broken("plan", "etp" if c.etp else "tp", f"etp must divide the experts' width of {feed.width:,}")
        if isinstance(feed, Experts) and feed.shared is not None and feed.shared.width % c.tp:
            yield Broken("plan", "tp", f"tp must divide the shared experts' width of {feed.shared.width:,}")
    if arch.hidden_size % c.tp:
        yield Broken("plan", "tp", f"tp must divide the hidden size of {arch.hidden_size:,}")


def _experts(choice: Choice, c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    counts = {layer.feed_forward.count for layer in arch.kinds if isinstance(layer.feed_forward, Experts)}
    if c.ep > 1 and not counts:
        yield Broken("plan", "ep", "the model has no experts, so there is nothing to divide")
        return
    for count in sorted(counts):
        if count % c.ep:
            yield Broken("plan", "ep", f"ep must divide the {count} experts")
    size = c.expert_tp * c.ep * c.pp
    if choice.gpus % size:
        # Without experts etp follows tp, and tp·pp divides the GPUs already.
        yield Broken("plan", "ep", f"etp·ep·pp = {c.expert_tp}·{c.ep}·{c.pp} = {size:,} must divide the "
                     f"{choice.gpus:,} GPUs", (("plan", "etp"), ("cluster", "gpus")))  # fmt: skip
    elif (choice.gpus // size) % c.num_distributed_optimizer_instances:
        yield Broken("plan", "num_distributed_optimizer_instances",
                     f"must divide the {choice.gpus // size:,} expert-data-parallel ranks")  # fmt: skip
    yield from _expert_groups(c, arch)
    if counts and c.tp > 1 and not c.sequence_parallel:
        yield Broken("plan", "sequence_parallel", "experts with tensor parallelism need sequence parallelism")
    if any(isinstance(x.feed_forward, Experts) and x.feed_forward.bias for x in arch.kinds) and c.expert_tp > 1:
        yield Broken("plan", "etp", "experts with a bias need etp = 1")


def _expert_groups(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    groups, limit = c.moe_router_num_groups, c.moe_router_group_topk
    if limit is None:
        return
    if groups is None:
        yield Broken("plan", "moe_router_group_topk", "needs moe_router_num_groups", (("plan", "moe_router_num_groups"),))
        return
    if limit > groups:
        yield Broken("plan", "moe_router_group_topk", f"must be at most the {groups} groups of experts")
    for x in dict.fromkeys(layer.feed_forward for layer in arch.kinds if isinstance(layer.feed_forward, Experts)):
        if x.count % groups:
            yield Broken("plan", "moe_router_num_groups", f"must divide the {x.count} experts")
        elif x.active > limit * (x.count // groups):
            yield Broken("plan", "moe_router_group_topk", f"{limit} of {groups} groups have {limit * (x.count // groups)} "
                         f"experts, and a token needs {x.active}")  # fmt: skip
        elif limit < groups and x.active < limit:
            yield Broken("plan", "moe_router_group_topk", f"a token with {x.active} experts has no use for {limit} groups")


def _layers(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    L, p, v = len(arch.layers), c.pp, c.vpp
    first, last = c.decoder_first_pipeline_num_layers, c.decoder_last_pipeline_num_layers
    uneven = first is not None or last is not None
    if c.pipeline_model_parallel_layout is not None:
        yield from _layout(c, L)
        return
    accounted = c.account_for_embedding_in_pipeline_split or c.account_for_loss_in_pipeline_split
    if v > 1 and p == 1:
        yield Broken("plan", "vpp", "interleaving needs a pipeline: pp must be greater than 1")
        return
    if uneven and accounted:
        yield Broken("plan", "account_for_loss_in_pipeline_split" if c.account_for_loss_in_pipeline_split
                     else "account_for_embedding_in_pipeline_split",
                     "cannot go with a given number of layers on the first or last stage")  # fmt: skip
        return
    if v > 1 and p == 2 and first is not None and last is not None:
        # transformer_layer.py, get_transformer_layer_offset: a ZeroDivisionError.
        yield Broken("plan", "vpp", "with the layers of first and last stage given Megatron divides by the stages between, and pp = 2 has none",
                     (("plan", "pp"),), (1,))  # fmt: skip
        return
    if p > L + accounted:
        yield Broken("plan", "pp", f"the model has only {L} layers, so a stage would be without a layer")
        return
    per_rank = layers_of_ranks(c, L)
    if per_rank is None and uneven:
        key = "decoder_first_pipeline_num_layers" if first is not None else "decoder_last_pipeline_num_layers"
        other = tuple(("plan", name) for name in ("decoder_last_pipeline_num_layers", "pp"))
        left, stages = L - (first or 0) - (last or 0), p - (first is not None) - (last is not None)
        yield Broken("plan", key, f"the {left} layers left must be divided evenly over the {stages} stages left", other)
        return
    if per_rank is None:
        yield Broken("plan", "pp", f"pp must divide the {L} layers (or give "
                     "decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers)"
                     if not accounted else f"pp must divide the {L} layers and the places for embedding and loss",
                     (("plan", "vpp"),))  # fmt: skip
        return
    for count in dict.fromkeys(per_rank):
        if count % v:
            yield Broken("plan", "vpp", f"vpp must divide the {count} layers of a stage")
            return
    smallest = min(per_rank) // v - (1 if accounted else 0)
    if min(per_rank) == 0 or (smallest < 0):
        yield Broken("plan", "pp", "a stage would be without a layer", (("plan", "vpp"),))


def _layout(c: MegatronPlan, layers: int) -> Iterator[Broken]:
    key, next_tokens = "pipeline_model_parallel_layout", c.mtp_num_layers or 0
    others = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
              "account_for_loss_in_pipeline_split")  # fmt: skip
    for other in others:
        if getattr(c, other):
            yield Broken("plan", other, "cannot go with pipeline_model_parallel_layout, which says it all", values=(None, False))
    assert c.pipeline_model_parallel_layout is not None
    instead = (even(layers, c.pp * c.vpp, next_tokens),)
    try:
        said = rows(c.pipeline_model_parallel_layout)
    except ValueError as error:
        yield Broken("plan", key, str(error), values=instead)
        return
    for rule in broken_rules(said, c.pp, c.vpp, layers, next_tokens):
        yield Broken("plan", key, rule, values=instead)
    if c.vpp > 1 and c.pp == 1:
        yield Broken("plan", key, "interleaving needs a pipeline: pp must be greater than 1", (("plan", "pp"),), instead)


def _batches(choice: Choice, c: MegatronPlan) -> Iterator[Broken]:
    t, model = choice.training, c.tp * c.pp * c.cp
    if choice.gpus % model:
        return
    dp = choice.gpus // model
    if t.global_batch % (t.micro_batch * dp):
        yield Broken("training", "global_batch", f"micro_batch·dp = {t.micro_batch}·{dp} = {t.micro_batch * dp:,} "
                     "must divide the global batch", (("training", "micro_batch"), ("cluster", "gpus")))  # fmt: skip
    else:
        m = t.global_batch // (t.micro_batch * dp)
        group = c.microbatch_group_size_per_vp_stage or c.pp
        if c.vpp > 1 and (group < c.pp or group > m):
            key = "microbatch_group_size_per_vp_stage"
            yield Broken("plan", key if getattr(c, key) else "vpp", f"interleaving takes micro-batches in groups of {group}: at least "
                         f"pp = {c.pp}, at most the {m} that there are", (("training", "global_batch"),))  # fmt: skip
        elif c.vpp > 1 and m % group and 0 < m % group < c.pp:
            yield Broken("training", "global_batch", f"interleaving needs its {m} micro-batches to be a multiple of "
                         f"{group} (pp, or microbatch_group_size_per_vp_stage), or to leave at least pp",
                         (("training", "micro_batch"), ("plan", "vpp")))  # fmt: skip
    parts = (2 * c.cp if c.cp > 1 else 1) * (c.tp if c.sequence_parallel else 1)
    if t.sequence_length % parts:
        what = "2·cp" if c.cp > 1 else ""
        what += ("·tp" if what else "tp") if c.sequence_parallel and c.tp > 1 else ""
        yield Broken("training", "sequence_length", f"{what} = {parts} must divide the sequence length")
