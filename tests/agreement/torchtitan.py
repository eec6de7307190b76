"""Random plans of torchtitan: model, sizes and every option that its dry run takes."""

from __future__ import annotations

from random import Random
from typing import Any

NEEDS = (
    "tokenwire.measure.dryrun.torchtitan", "tokenwire.measure.dryrun.torch_parallel", "tokenwire.measure.dryrun.torch_pipeline",
    "tokenwire.measure.dryrun.torch_trainer", "tokenwire.measure.dryrun.ddp", "torch",
)  # fmt: skip
"""What a run imports, so that it is imported once."""

SINGLE = ("1F1B", "GPipe")
LOOPED = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


def draw(random: Random) -> dict[str, Any]:
    """Return a journey, most often one that torchtitan takes."""
    plan: dict[str, Any] = {"dialect": "torchtitan"}
    tp, cp = random.choice((1, 1, 1, 2, 2, 4)), random.choice((1, 1, 1, 1, 2, 4))
    pp = random.choice((1, 1, 1, 2, 2, 3, 4))
    replicate = random.choice((1, 1, 1, 1, 2, 3, 4))
    shard = random.choice((1, 2, 2, 3, 4, 5, 8, 16, random.choice((24, 64, 128, 256))))
    if tp * pp > 1 and cp == 1 and shard == 1 and random.random() < 0.9:
        # Replicas that share nothing go with no other parallelism.
        replicate = 1
    while tp * cp * pp * replicate * shard > 4096:
        shard //= 2
    plan |= {"tp": tp, "pp": pp, "cp": cp}
    model = _model(random, tp)
    _data_parallel(random, plan, replicate, shard, model["tied_embeddings"])
    micro_batches = _pipeline(random, plan, model) if pp > 1 else random.choice((1, 1, 2, 2, 3))
    if tp > 1:
        plan |= _some(random, 0.25, disable_loss_parallel=True)
        plan |= _some(random, 0.2, enable_async_tensor_parallel=True)
        if plan.get("enable_async_tensor_parallel"):
            plan |= _some(random, 0.3, enable_symm_mem_for_group=True)
    if cp > 1:
        plan |= _some(random, 0.5, context_parallel_rotate_method=random.choice(("allgather", "alltoall")))
    if "experts" in model:
        _experts(random, plan, model, shard * cp * tp)
    _checkpoints(random, plan)
    plan |= _some(random, 0.3, log_freq=1)
    micro_batch = random.choice((1, 1, 2, 3))
    # Experts get as many tokens each: the prediction is of even routing.
    length = 2 * tp * cp * (model["experts"] if "experts" in model else random.choice((4, 6, 8)))
    model["max_positions"] = length
    training = {
        "sequence_length": length, "micro_batch": micro_batch, "global_batch": micro_batch * micro_batches * replicate * shard,
        "precision": random.choice(("bf16", "bf16", "fp16", "fp32")),
    }  # fmt: skip
    gpus = tp * cp * pp * replicate * shard
    cluster = {"gpus": gpus, "gpus_per_node": next(n for n in (8, 6, 5, 4, 3, 2, 1) if gpus % n == 0)}
    return {"model": model, "training": training, "plan": plan, "cluster": cluster}


def _some(random: Random, chance: float, **values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if random.random() < chance}


def _model(random: Random, tp: int) -> dict[str, Any]:
    heads = random.choice((4, 8, 8, 12, 16))
    head_dim = random.choice((8, 8, 12, 16))
    layers = random.choice((1, 1, 2, 2, 3, 4))
    model: dict[str, Any] = {
        "hidden_size": heads * head_dim, "layers": layers, "heads": heads,
        "kv_heads": random.choice([n for n in (1, 2, 4, 8, 12, 16) if heads % n == 0 and (n % tp == 0 or random.random() < 0.05)] or [heads]),
        # Ranks of tensor parallelism hold equal parts: the step table speaks of a stage, not of a rank.
        "vocabulary_size": tp * random.choice((13, 50, 128, 249, 250)), "norm": random.choice(("rms", "rms", "layer")),
        "positions": "rotary" if tp > 1 else random.choice(("rotary", "rotary", "learned", "none")),
        "gated": random.random() < 0.7, "bias": random.random() < 0.3, "tied_embeddings": random.random() < 0.2,
        "feed_forward": tp * random.choice((24, 40, 63, 64, 88)),
    }  # fmt: skip
    model |= _some(random, 0.2, qkv_bias=random.random() < 0.5)
    model |= _some(random, 0.2, qk_norm="head")
    if random.random() < 0.15:
        model["hidden_size"] = random.choice((40, 96, 100))
        model["head_dim"] = head_dim
    if random.random() < 0.35:
        experts = random.choice((4, 8, 8, 16))
        model |= {"experts": experts, "active_experts": random.choice((1, 2, 3)), "expert_feed_forward": tp * random.choice((16, 32, 64, 96)),
                  "gated": True, "bias": False}  # fmt: skip
        model |= _some(random, 0.3, shared_experts=random.choice((1, 2)))
        if layers > 1:
            model |= _some(random, 0.3, dense_layers=random.choice((1, 2)) if layers > 2 else 1)
    if random.random() < 0.15:
        _latent(random, model)
    return model


def _latent(random: Random, model: dict[str, Any]) -> None:
    model.pop("qk_norm", None)
    model.pop("head_dim", None)
    model |= {
        "kv_heads": model["heads"], "kv_lora_rank": random.choice((16, 24)), "qk_nope_head_dim": random.choice((8, 12)),
        "qk_rope_head_dim": random.choice((4, 8)), "v_head_dim": random.choice((8, 12)), "norm": "rms", "bias": False,
        "positions": "rotary",
    }  # fmt: skip
    model.pop("qkv_bias", None)
    model |= _some(random, 0.6, q_lora_rank=random.choice((20, 32)))


def _data_parallel(random: Random, plan: dict[str, Any], replicate: int, shard: int, tied: bool) -> None:
    if replicate > 1:
        plan["data_parallel_replicate_degree"] = replicate
    if random.random() < 0.2 or shard == 1:
        plan["data_parallel_shard_degree"] = shard
    plan |= _some(random, 0.5, fsdp_reshard_after_forward=random.choice(("default", "always", "never")))
    plan |= _some(random, 0.2, fsdp_wrap="blocks")
    plan |= _some(random, 0.2, set_requires_gradient_sync=False)
    plan |= _some(random, 0.2, set_requires_all_reduce=False, set_reshard_after_backward=False)
    plan |= _some(random, 0.15, set_modules_to_forward_prefetch=random.choice((1, 2, 3)), set_modules_to_backward_prefetch=random.choice((1, 2, 3)))
    plan |= _some(random, 0.2, set_gradient_divide_factor=random.choice((0.5, 2.0, float(shard), 16.0)))
    if plan.get("fsdp_wrap") != "blocks" and not tied:
        plan |= _some(random, 0.15, set_unshard_in_backward=False)
    if replicate > 1:
        plan |= _some(random, 0.25, set_all_reduce_hook=True)
    plan |= _some(random, 0.2, mixed_precision_param=random.choice(("bfloat16", "float16", "float32")))
    plan |= _some(random, 0.3, mixed_precision_reduce=random.choice(("bfloat16", "float16", "float32")))


def _pipeline(random: Random, plan: dict[str, Any], model: dict[str, Any]) -> int:
    pp = plan["pp"]
    schedule = random.choice((*SINGLE, *SINGLE, *LOOPED, *V_SHAPED))
    plan["pipeline_parallel_schedule"] = schedule
    if schedule not in SINGLE and plan.get("fsdp_reshard_after_forward") == "always" and random.random() < 0.9:
        plan["fsdp_reshard_after_forward"] = "never"
    model["tied_embeddings"] = random.random() < 0.02
    per_rank = 1 if schedule in SINGLE else 2 if schedule in V_SHAPED else random.choice((2, 2, 3))
    first, last = (random.choice((1, 1, 1, 0, 2)) for _ in range(2))
    if (first, last) != (1, 1):
        plan |= {"pipeline_parallel_first_stage_less_layers": first, "pipeline_parallel_last_stage_less_layers": last}
    stages = pp * per_rank
    # At least so many layers that no stage is left without room, and then some that do not divide.
    least = stages * max(first, last, 1) - first - last
    model["layers"] = max(least, 1) + random.choice((0, 0, 0, 1, 2, stages if stages < 5 else 0))
    if "dense_layers" in model:
        model["dense_layers"] = min(model["dense_layers"], model["layers"] - 1)
    if per_rank == 3:
        plan["vpp"] = 3
    elif random.random() < 0.3:
        places = model["layers"] + first + last
        fitting = [n for n in range(1, places + 1) if -(-places // n) == stages]
        if fitting:
            plan["pipeline_parallel_layers_per_stage"] = random.choice(fitting)
    if schedule == "1F1B":
        return pp + random.choice((0, 0, 1, 3))
    if schedule == "DualPipeV":
        return stages + random.choice((0, 1, 2))
    if schedule in ("Interleaved1F1B", "InterleavedZeroBubble"):
        rounds = random.choice((1, 1, 2, 3))
        return rounds * random.choice((pp, pp, pp + 1)) if rounds > 1 else random.choice((1, pp, pp + 1))
    return random.choice((1, 2, pp, pp + 1, 2 * pp))


def _experts(random: Random, plan: dict[str, Any], model: dict[str, Any], ranks: int) -> None:
    tp = plan["tp"]
    etp = random.choice((1, tp)) if tp > 1 else 1
    fitting = [n for n in (1, 2, 4, 8, 16) if model["experts"] % n == 0 and ranks % (n * etp) == 0]
    if fitting and random.random() < 0.75:
        plan["ep"] = random.choice(fitting)
        if etp > 1:
            plan["etp"] = etp
    plan |= _some(random, 0.2, load_balance_coeff=0)


def _checkpoints(random: Random, plan: dict[str, Any]) -> None:
    split = plan.get("pipeline_parallel_schedule") in ("InterleavedZeroBubble", *V_SHAPED)
    if random.random() < (0.02 if split else 0.35):
        plan["activation_checkpoint_mode"] = random.choice(("full", "selective", "selective"))
        if plan["activation_checkpoint_mode"] == "selective":
            # By operator the stand-in for experts that are exchanged does not run again.
            by_operator = () if plan.get("ep", 1) > 1 else ("op",)
            plan |= _some(random, 0.7, selective_ac_option=random.choice((*by_operator, "1", "2", "3")))
        plan |= _some(random, 0.3, early_stop=True)
