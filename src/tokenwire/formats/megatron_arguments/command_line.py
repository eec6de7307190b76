"""The arguments of a run of Megatron-LM, and which of them change neither tensors, nor messages, nor memory.

Names: NVIDIA/Megatron-LM, megatron/training/arguments.py. An argument that is neither read nor listed here is told as an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenwire.formats.megatron_arguments.unrepresented import Unrepresented

LARGEST = 2**53
"""The largest number that is believed."""
NAMES = frozenset((
    "adam-beta1", "adam-beta2", "adam-eps", "apply-layernorm-1p", "apply-query-key-layer-scaling", "apply-wd-to-qk-layernorm",
    "attention-softmax-in-fp32", "auto-detect-ckpt-format", "bert-no-binary-head", "clip-grad", "data-cache-path", "data-path",
    "dataloader-seq-length", "dataloader-type", "decoupled-lr", "decoupled-min-lr", "disable-gloo-process-groups", "distributed-backend",
    "distributed-timeout-minutes", "empty-unused-memory-level", "enable-experimental", "finetune", "high-priority-stream-groups",
    "init-method-std", "is-hybrid-model", "manual-gc", "manual-gc-interval", "merge-file", "min-lr", "mock-data", "mscale", "mscale-all-dim",
    "mtp-loss-scaling-factor", "no-load-optim", "no-load-rng", "no-mmap-bin-files", "no-persist-layer-norm", "no-rope-fusion", "norm-epsilon",
    "num-workers", "overlap-p2p-communication-warmup-flush", "seed", "spec", "split", "te-rng-tracker", "test-mode", "train-iters",
    "train-samples", "use-flashinfer-fused-rope", "use-mcore-models", "use-mup", "use-tp-pp-dp-mapping", "verify-integrity", "vocab-file",
    "weight-decay", "use-rotary-position-embeddings", "use-persistent-ckpt-worker", "use-fused-weighted-squared-relu",
    "overlap-param-gather-with-optimizer-step", "step-batch-size-schedule", "accumulate-allreduce-grads-in-fp32", "tiktoken-pattern",
    "no-use-tokenizer-model-from-checkpoint-args", "max-tokens-to-oom", "override-opt-param-scheduler", "tp-comm-overlap-cfg",
    "expert-tensor-parallel-size", "moe-permute-fusion", "moe-router-fusion", "moe-shared-expert-overlap", "delay-wgrad-compute",
    "moe-hybridep-num-sms", "ddp-num-buckets", "ddp-pad-buckets-for-high-nccl-busbw", "quick-geglu", "glu-linear-offset",
    "activation-func-clamp-value", "error-injection-rate", "error-injection-type", "rerun-mode", "exit-interval", "inference-max-seq-length",
    "moe-layer-recompute", "use-distributed-optimizer-fusion", "no-ckpt-fully-parallel-save", "multi-latent-attention",
    "no-use-layer-wise-param-layout", "export-default-te-spec", "export-te-mcore-model", "export-model-type",
))  # fmt: skip
"""Arguments, by name."""
STARTS = (
    "log-", "logging-", "tensorboard-", "timing-", "wandb-", "save", "load", "ckpt-", "dist-ckpt-", "async-", "use-checkpoint-", "eval-", "lr",
    "check-", "exit-", "fim-", "straggler-", "rotary-", "yarn-", "no-yarn-", "muon-", "mup-", "moe-router-", "moe-z-loss-coeff",
    "moe-flex-dispatcher-num", "megatron-fsdp-", "outer-dp-sharding-strategy", "override-", "inference-", "mamba-inference-", "no-ckpt-", "no-save", "no-load",
)  # fmt: skip
"""Beginnings of names of arguments: what is logged, saved, loaded, learned at which rate, rotated, routed."""


def whole(args: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return an argument that is a whole number of at least 1, written as one or as text. Raises ``Unrepresented`` for another.

    >>> whole({"num-layers": "12"}, "num-layers"), whole({}, "context-parallel-size", 1)
    (12, 1)
    """
    value = args.get(name, default)
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise Unrepresented(
            f"{name} = {str(value)[:40]}" if name in args else f"no {name}",
            rule="must be a whole number of at least 1",
        )
    return value


class Arguments(Mapping[str, Any]):
    """Arguments of a command line that remember which of them were asked for."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._args, self.read = args, set[str]()

    def __getitem__(self, name: str) -> Any:
        """Return an argument, and note that it was asked for."""
        self.read.add(name)
        return self._args[name]

    def __iter__(self) -> Iterator[str]:
        """Go over the names."""
        return iter(self._args)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._args)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the arguments that were neither asked for nor are known to change nothing.

        >>> args = Arguments({"hidden-size": 8, "no-such-thing": True})
        >>> "hidden-size" in args, args.unknown
        (True, ('no-such-thing',))
        """
        known = NAMES | self.read
        return tuple(sorted(name for name in self._args if name not in known and not name.startswith(STARTS)))
