"""Random plans of DistributedDataParallel: model, buckets and every option that its dry run takes."""

from __future__ import annotations

from random import Random
from typing import Any

NEEDS = ("tokenwire.measure.dryrun.ddp", "tokenwire.measure.dryrun.ddp_process", "tokenwire.measure.dryrun.torch_model",
         "torch.nn.parallel", "torch.profiler", "torch.distributed.algorithms.ddp_comm_hooks.default_hooks", "torch")  # fmt: skip
"""What a run imports, so that it is imported once: its two processes are forked from the one that has it."""


def draw(random: Random) -> dict[str, Any]:
    """Return a journey of replicas."""
    gpus = random.choice((2, 2, 3, 4, 5, 8, 16, 24, 64, 128, 1000, 4096))
    micro_batch, micro_batches = random.choice((1, 1, 2, 3)), random.choice((1, 1, 2, 3))
    length = random.choice((8, 16, 64))
    plan: dict[str, Any] = {"dialect": "ddp"}
    if random.random() < 0.8:
        plan["bucket_cap_mb"] = random.choice((0.01, 0.02, 0.05, 0.1, 0.3, 1, 1.5, 25, round(random.uniform(0.005, 2), 4)))
    plan |= {key: value for key, chance, value in (
        ("no_sync", 0.3, True), ("find_unused_parameters", 0.2, True), ("static_graph", 0.15, True),
        ("gradient_as_bucket_view", 0.3, True), ("broadcast_buffers", 0.2, False), ("comm_hook", 0.2, "fp16_compress_hook"),
        ("buffers", 0.3, random.choice((1, 64, 100, 5000))), ("parameter_dtype", 0.3, random.choice(("bfloat16", "float16"))),
    ) if random.random() < chance}  # fmt: skip
    training = {
        "sequence_length": length, "micro_batch": micro_batch, "global_batch": micro_batch * micro_batches * gpus,
        "precision": random.choice(("bf16", "fp16", "fp32")),
    }  # fmt: skip
    return {"model": _model(random, length), "training": training, "plan": plan, "cluster": {"gpus": gpus, "gpus_per_node": next(n for n in (8, 5, 4, 3, 2) if gpus % n == 0)}}


def _model(random: Random, length: int) -> dict[str, Any]:
    heads, head_dim = random.choice((1, 2, 4, 8, 12)), random.choice((8, 12, 16))
    return {
        "hidden_size": heads * head_dim, "layers": random.choice((1, 1, 2, 3, 4, 6)), "heads": heads,
        "kv_heads": random.choice([n for n in (1, 2, 4, 8, 12) if heads % n == 0]), "vocabulary_size": random.choice((50, 512, 997, 5000)),
        "max_positions": length * random.choice((1, 4)), "norm": random.choice(("rms", "layer")),
        "positions": random.choice(("learned", "rotary", "none")), "gated": random.random() < 0.5, "bias": random.random() < 0.5,
        "qkv_bias": random.random() < 0.5, "tied_embeddings": random.random() < 0.4, "qk_norm": random.choice(("none", "none", "head")),
        "feed_forward": random.choice((24, 100, 256, 352)),
    }  # fmt: skip
