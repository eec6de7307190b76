"""Random plans of DeepSpeed: model, sizes and every option that its dry run takes."""

from __future__ import annotations

from random import Random
from typing import Any

NEEDS = (
    "tokenwire.measure.dryrun.torch_model", "tokenwire.measure.dryrun.deepspeed_process", "tokenwire.measure.dryrun.deepspeed_pipeline",
    "tokenwire.measure.dryrun.torchtitan", "torch", "deepspeed", "deepspeed.pipe", "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.stage_1_and_2", "deepspeed.runtime.zero.muon.muon_optimizer", "deepspeed.runtime.bf16_optimizer",
    "deepspeed.sequence.layer", "deepspeed.runtime.sequence_parallel.parallel_state_sp",
)  # fmt: skip
"""What a run imports, so that it is imported once (DeepSpeed's Muon, which every run imports, compiles for seconds)."""


def draw(random: Random) -> dict[str, Any]:
    """Return a journey, most often one that DeepSpeed takes."""
    plan: dict[str, Any] = {"dialect": "deepspeed"}
    stage = random.choice((0, 1, 1, 2, 2, 3, 3, 3))
    pp = random.choice((2, 2, 3, 4)) if stage < 2 and random.random() < 0.4 else 1
    cp = random.choice((1, 1, 2, 4)) if pp == 1 else 1
    dp = random.choice((1, 2, 2, 3, 4, 5, 8, 8, 16, random.choice((64, 256, 1024, 4096))))
    # DeepSpeed makes every group of a divided world on every rank: minutes for thousands of ranks.
    while dp * cp * pp > (4096 if cp * pp == 1 else 256):
        dp //= 2
    plan |= {"zero_stage": stage, "pp": pp, "cp": cp}
    world = dp * cp * pp
    model = _model(random, pp, cp)
    _gradients(random, plan)
    if stage == 3:
        _parameters(random, plan, model, world)
    micro_batch, micro_batches = random.choice((1, 1, 2)), random.choice((1, 1, 2, 3, 4))
    length = cp * random.choice((4, 8, 12))
    model["max_positions"] = length
    training = {
        "sequence_length": length, "micro_batch": micro_batch, "global_batch": micro_batch * micro_batches * dp,
        "precision": random.choice(("bf16", "bf16", "fp16", "fp32")),
    }  # fmt: skip
    return {"model": model, "training": training, "plan": plan, "cluster": {"gpus": world, "gpus_per_node": next(n for n in range(8, 0, -1) if world % n == 0)}}


def _some(random: Random, chance: float, **values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if random.random() < chance}


def _model(random: Random, pp: int, cp: int) -> dict[str, Any]:
    heads, head_dim = random.choice((4, 8, 8, 12)), random.choice((4, 8, 12))
    model: dict[str, Any] = {
        "hidden_size": heads * head_dim, "layers": pp * random.choice((1, 1, 2)) + random.choice((0, 0, 1, 2)), "heads": heads,
        "kv_heads": random.choice([n for n in (1, 2, 4, 8, 12) if heads % n == 0 and (n % cp == 0 or random.random() < 0.1)] or [heads]),
        "vocabulary_size": random.choice((64, 130, 249, 256)), "norm": random.choice(("rms", "rms", "layer")),
        "positions": random.choice(("rotary", "rotary", "learned", "none")), "gated": random.random() < 0.7,
        "bias": random.random() < 0.3, "tied_embeddings": random.random() < 0.3, "feed_forward": random.choice((40, 64, 88, 99)),
    }  # fmt: skip
    model |= _some(random, 0.2, qkv_bias=random.random() < 0.5)
    model |= _some(random, 0.2, qk_norm="head")
    if random.random() < 0.15:
        model |= {"hidden_size": random.choice((40, 96, 100)), "head_dim": head_dim}
    return model


def _gradients(random: Random, plan: dict[str, Any]) -> None:
    # Tensors have from 4 to 26,000 elements: buckets hold one, several or all of them, or less than one.
    plan |= _some(random, 0.6, reduce_bucket_size=random.choice((300, 2_000, 9_999, 50_000, 200_000)))
    plan |= _some(random, 0.2, allgather_bucket_size=random.choice((1_000, 20_000)))
    plan |= _some(random, 0.3, reduce_scatter=random.random() < 0.3)
    plan |= _some(random, 0.4, overlap_comm=random.random() < 0.7)
    plan |= _some(random, 0.25, contiguous_gradients=False)
    plan |= _some(random, 0.25, gradient_clipping=1.0)
    plan |= _some(random, 0.3, communication_data_type=random.choice(("fp32", "fp16", "bf16")))
    if plan["zero_stage"]:
        plan |= _some(random, 0.15, offload_optimizer="cpu")
    if plan["zero_stage"] in (1, 2):
        plan |= _some(random, 0.3, round_robin_gradients=True)
        plan |= _some(random, 0.3, use_multi_rank_bucket_allreduce=False)


def _parameters(random: Random, plan: dict[str, Any], model: dict[str, Any], world: int) -> None:
    plan |= _some(random, 0.8, stage3_param_persistence_threshold=random.choice((0, 0, 50, 1_000, 5_000)))
    plan |= _some(random, 0.6, stage3_prefetch_bucket_size=random.choice((0, 1_000, 10_000, 60_000)))
    plan |= _some(random, 0.4, stage3_max_live_parameters=random.choice((0, 5_000, 30_000, 200_000)))
    plan |= _some(random, 0.5, stage3_max_reuse_distance=random.choice((0, 0, 5_000, 50_000)))
    fitting = [n for n in (2, 4, 8) if world % n == 0]
    if fitting and plan["cp"] == 1 and random.random() < 0.3:
        plan["zero_hpz_partition_size"] = random.choice(fitting)
    plan |= _some(random, 0.15, offload_param="cpu")
    quantised = _some(random, 0.2, zero_quantized_weights=True) | _some(random, 0.2, zero_quantized_gradients=True)
    if quantised:
        # What is quantised divides into eight equal parts a rank.
        model |= {"hidden_size": 64, "heads": 8, "kv_heads": random.choice((2, 4, 8)), "feed_forward": random.choice((64, 128)),
                  "vocabulary_size": 256}  # fmt: skip
        model.pop("head_dim", None)
        model.pop("qk_norm", None)
    plan |= quantised
