"""Plans of Megatron-Core over every option that its dry run can take."""

from __future__ import annotations

from random import Random
from typing import Any

NEEDS = (
    "torch.distributed",
    "torch.testing._internal.distributed.fake_pg",
    "megatron.core.models.gpt",
    "megatron.core.optimizer",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.pipeline_parallel.schedules",
    "tokenwire.measure.dryrun.megatron_step",
    "tokenwire.step.dialects.megatron",
)
"""Imported once, before plans are run."""

Keys = dict[str, Any]


def draw(random: Random) -> dict[str, Keys]:
    """Return a plan; most of them are accepted, some break a rule of Megatron's."""
    tp, pp, cp = random.choice((1, 1, 2, 4)), random.choice((1, 1, 2, 4)), random.choice((1, 1, 1, 2, 4))
    plan: Keys = {"dialect": "megatron", "tp": tp, "pp": pp, "cp": cp}
    plan["sequence_parallel"] = tp > 1 and random.random() < 0.6
    dp = random.choice((1, 2, 3, 4, 8, 16))
    if random.random() < 0.08:
        dp = max(1, random.choice((256, 512, 1024, 4096)) // (tp * pp * cp))
    model = _model(random)
    _pipeline(random, plan, model)
    if "experts" in model:
        _experts(random, plan, model, tp * cp * dp)
    _data_parallel(random, plan, dp, tp * pp * cp * dp)
    _recomputation(random, plan, model)
    _attention(random, plan, model)
    _losses(random, plan)
    training = _training(random, plan, dp)
    if "experts" in model:
        _evenly_dealt(plan, model, training)
    return {"model": model, "training": training, "plan": plan, "cluster": _cluster(tp * pp * cp * dp)}


def _cluster(gpus: int) -> Keys:
    return {"gpus": gpus, "gpus_per_node": next(n for n in (8, 6, 4, 3, 2, 1) if gpus % n == 0)}


def _model(random: Random) -> Keys:
    h, heads = random.choice((64, 96, 128, 160)), random.choice((4, 8, 8))
    model: Keys = {
        "hidden_size": h, "layers": random.choice((1, 2, 3, 4, 4, 5, 6, 8)), "heads": heads,
        "vocabulary_size": random.choice((200, 256, 251, 1000)), "max_positions": 512,
        "tied_embeddings": random.random() < 0.5, "norm": random.choice(("layer", "rms")),
        "feed_forward": random.choice((96, 128, 176)),
    }  # fmt: skip
    gated = random.random() < 0.6
    model |= {"gated": gated, "activation": "silu" if gated else "gelu", "bias": random.random() < 0.4}
    model["positions"] = random.choice(("learned", "rotary", "rotary", "none"))
    if random.random() < 0.2:
        model |= {"kv_lora_rank": random.choice((32, 64)), "qk_nope_head_dim": random.choice((16, 32)),
                  "qk_rope_head_dim": random.choice((8, 16)), "v_head_dim": random.choice((16, 32)), "positions": "rotary"}  # fmt: skip
        if random.random() < 0.6:
            model["q_lora_rank"] = random.choice((48, 96))
    else:
        model["kv_heads"] = random.choice((heads, heads, 4, 2, 1))
        if random.random() < 0.3:
            model["head_dim"] = random.choice((16, 32))
        if random.random() < 0.25:
            model["qk_norm"] = "head"
        if random.random() < 0.2:
            model["qkv_bias"] = random.random() < 0.5
    if random.random() < 0.4:
        model |= {
            "experts": random.choice((4, 8, 16)),
            "active_experts": random.choice((1, 2, 3)),
            "expert_feed_forward": random.choice((48, 64)),
        }
        if random.random() < 0.35:
            model["shared_feed_forward"] = random.choice((32, 64))
        if random.random() < 0.3:
            model["dense_layers"] = random.choice((1, 2))
    return model


def _training(random: Random, plan: Keys, dp: int) -> Keys:
    b, m = random.choice((1, 1, 2, 3)), random.choice((1, 2, 3, 4, 6))
    if plan["pp"] > 1 and random.random() < 0.95:
        # Interleaving takes micro-batches in groups.
        group = plan.get("microbatch_group_size_per_vp_stage", plan["pp"])
        m = group * random.choice((1, 2)) if plan.keys() & {"vpp", "pipeline_model_parallel_layout"} else m
    unit = (2 * plan["cp"] if plan["cp"] > 1 else 1) * plan["tp"]
    optimizers = (
        ("adamw", "adam")
        if plan["use_distributed_optimizer"] and random.random() < 0.98
        else ("adamw", "sgd")
    )
    return {
        "sequence_length": random.choice((32, 48, 64)) if unit <= 16 else random.choice((32, 64)), "micro_batch": b, "global_batch": b * m * dp,
        "precision": random.choice(("bf16", "bf16", "bf16", "fp16", "fp32")), "optimizer": random.choice(optimizers),
    }  # fmt: skip


def _evenly_dealt(plan: Keys, model: Keys, training: Keys) -> None:
    """Lengthen sequences until the rows of a rank can be dealt evenly to experts: the dry run sees the sizes of one draw of the routing."""
    parts = plan["cp"] * plan["tp"]
    rows = training["micro_batch"] * model["active_experts"]
    while (
        training["sequence_length"] // parts * rows % model["experts"] and training["sequence_length"] < 1024
    ):
        training["sequence_length"] += 2 * parts


def _pipeline(random: Random, plan: Keys, model: Keys) -> None:
    pp, layers = plan["pp"], model["layers"]
    # With more than two ranks of context parallelism those at the ends shift fewer tokens than the prediction of their stage says.
    if random.random() < 0.25 and model["positions"] != "learned" and plan["cp"] <= 2:
        plan["mtp_num_layers"] = random.choice((1, 1, 2))
    if pp == 1:
        return
    if random.random() < 0.3:
        plan["variable_seq_lengths"] = True
    how = random.choice(("even", "even", "vpp", "vpp", "uneven", "account", "layout"))
    if how in ("vpp", "account") and (how == "vpp" or random.random() < 0.4):
        plan["vpp"] = random.choice((2, 2, 3))
        if random.random() < 0.3:
            plan["microbatch_group_size_per_vp_stage"] = random.choice((pp, pp, 2 * pp))
    if how == "uneven":
        sides = random.choice((("first",), ("last",), ("first", "last")))
        plan |= {f"decoder_{side}_pipeline_num_layers": random.choice((1, 2, 3)) for side in sides}
        left, between = (
            layers - sum(plan[f"decoder_{side}_pipeline_num_layers"] for side in sides),
            pp - len(sides),
        )
        # The layers between are made to fit.
        model["layers"] += (-left) % between if between else -left
        if random.random() < 0.3:
            plan["vpp"] = random.choice((1, 2))
    elif how == "account":
        sides = random.choice((("embedding",), ("loss",), ("embedding", "loss")))
        plan |= {f"account_for_{side}_in_pipeline_split": True for side in sides}
        model["layers"] = layers + (-(layers + len(sides))) % (pp * plan.get("vpp", 1))
    elif how == "layout":
        plan["pipeline_model_parallel_layout"] = _layout(
            random, pp * random.choice((1, 1, 2)), pp, layers, plan.get("mtp_num_layers", 0)
        )
    elif random.random() < 0.95:
        model["layers"] = layers + (-layers) % (pp * plan.get("vpp", 1))


def _layout(random: Random, stages: int, pp: int, layers: int, next_tokens: int) -> str:
    cuts = sorted(random.choices(range(layers + 1), k=stages - 1))
    rows = ["t" * (b - a) for a, b in zip([0, *cuts], [*cuts, layers], strict=True)]
    rows[0] = "E" + rows[0]
    # Modules of multi-token prediction stand after all layers, on one of the last stages.
    last = max(i for i, row in enumerate(rows) if "t" in row)
    at = random.choice(range(max(last, stages - pp), stages))
    rows[at] += "m" * next_tokens
    rows[-1] += "L"
    return "|".join(rows)


def _experts(random: Random, plan: Keys, model: Keys, ranks: int) -> None:
    """Add options of experts; ``ranks`` are those of a stage."""
    plan["sequence_parallel"] = plan["tp"] > 1
    etp = plan["tp"]
    if (model["bias"] and etp > 1) or random.random() < 0.35:
        etp = plan["etp"] = 1 if model["bias"] else random.choice((1, 1, 2))
    possible = [n for n in (1, 2, 4, 8) if model["experts"] % n == 0 and ranks % (n * etp) == 0]
    plan["ep"] = random.choice(possible or [1])
    if random.random() < 0.04:
        plan["ep"] = random.choice((1, 2, 3, 8))
    plan["moe_token_dispatcher_type"] = random.choice(("alltoall", "allgather"))
    if random.random() < 0.4:
        plan |= {
            "moe_aux_loss_coeff": 0.01,
            "moe_router_load_balancing_type": random.choice(("aux_loss", "seq_aux_loss", "global_aux_loss")),
        }
    elif random.random() < 0.2:
        plan["moe_router_load_balancing_type"] = random.choice(("none", "sinkhorn"))
    if random.random() < 0.2:
        plan["moe_z_loss_coeff"] = 0.001
    if random.random() < 0.3:
        plan["moe_router_dtype"] = random.choice(("fp32", "fp64"))
    if random.random() < 0.3:
        plan["moe_router_enable_expert_bias"] = True
    if random.random() < 0.2:
        groups = random.choice((2, 4))
        enough = [
            n
            for n in (1, 2, 4)
            if n <= groups and n <= model["active_experts"] <= n * (model["experts"] // groups)
        ]
        plan |= {"moe_router_num_groups": groups, "moe_router_group_topk": random.choice(enough or [1])}
    if plan.get("moe_router_load_balancing_type") != "sinkhorn" and random.random() < 0.2:
        plan["moe_expert_capacity_factor"] = random.choice((1.0, 1.25, 2.0))
        plan["moe_pad_expert_input_to_capacity"] = random.random() < 0.7
    if plan.get("variable_seq_lengths") and random.random() < 0.95:
        plan["moe_token_dispatcher_type"] = "alltoall"


def _data_parallel(random: Random, plan: Keys, dp: int, world: int) -> None:
    plan["use_distributed_optimizer"] = sharded = random.random() < 0.6
    plan["grad_reduce_in_fp32"] = random.random() < 0.5
    plan["overlap_grad_reduce"] = random.random() < 0.4
    if plan["overlap_grad_reduce"] and sharded and random.random() < 0.7:
        plan["overlap_param_gather"] = True
        plan["align_param_gather"] = random.random() < 0.3
    if random.random() < 0.4:
        plan["ddp_bucket_size"] = random.choice((3_000, 10_000, 50_000, 200_000))
    if sharded and random.random() < 0.3:
        edp = world // (plan["pp"] * plan.get("ep", 1) * plan.get("etp", plan["tp"]))
        plan["num_distributed_optimizer_instances"] = random.choice(
            [n for n in (1, 2, 4) if dp % n == 0 and edp % n == 0]
        )
    for name, chance in (("pad_buckets_for_high_nccl_busbw", 0.2), ("average_in_collective", 0.15), ("log_num_zeros_in_grad", 0.2),
                         ("reduce_scatter_with_fp32_accumulation", 0.1)):  # fmt: skip
        if random.random() < chance:
            plan[name] = True
    if random.random() < 0.3:
        plan["make_vocab_size_divisible_by"] = random.choice((1, 8, 64))
    if random.random() < 0.15:
        plan["clip_grad"] = 0.0


def _recomputation(random: Random, plan: Keys, model: Keys) -> None:
    how = random.random()
    if how < 0.3:
        plan |= {"recompute_granularity": "full", "recompute_method": random.choice(("uniform", "block")),
                 "recompute_num_layers": 1}  # fmt: skip
        if random.random() < (0.6 if plan["recompute_method"] == "block" else 0.1):
            plan["recompute_num_layers"] = random.choice((2, 3))
        if plan["tp"] > 1 and not plan["sequence_parallel"] and random.random() < 0.5:
            plan["distribute_saved_activations"] = True
    elif how < 0.6:
        names = ["core_attn", "layernorm", "moe", "shared_experts"] + ["mlp"] * (not model["bias"])
        names += ["mla_up_proj"] * ("kv_lora_rank" in model)
        plan |= {
            "recompute_granularity": "selective",
            "recompute_modules": random.sample(names, random.choice((1, 2, 3))),
        }


def _attention(random: Random, plan: Keys, model: Keys) -> None:
    if plan["cp"] == 1:
        return
    kinds = ("p2p", "a2a", "all_gather")
    if random.random() < 0.5:
        plan["cp_comm_type"] = random.choice(kinds)
    elif "mtp_num_layers" not in plan and random.random() < 0.4:
        plan["cp_comm_type"] = [random.choice(kinds) for _ in range(model["layers"])]
    elif random.random() < 0.4:
        plan |= {"cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [2, plan["cp"] // 2]}


def _losses(random: Random, plan: Keys) -> None:
    if random.random() < 0.2:
        plan["calculate_per_token_loss"] = True
    if random.random() < 0.25:
        plan |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}
