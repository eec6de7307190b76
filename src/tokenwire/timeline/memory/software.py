"""What shapes memory beyond model, training and plan: the software that runs them, by Megatron's own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from tokenwire.config import MemorySize, Section
from tokenwire.fabric import ClusterFacts
from tokenwire.timeline.memory.gpu import MIB, GpuFacts, gpu_facts

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Names of the variable by which torch's allocator is set."""


class Software(Section):
    """Options of the framework and its libraries that change what stands in memory. ``gpu`` is its name in clusters (none: an H100);
    ``gpu_memory`` and ``gpu_capability`` (CUDA's, the major number) are for one that is not known, or has other memory.

    ``attention_backend`` "auto" is what Transformer Engine prefers on the GPU. Dropout is the plan's where it is not given here.
    ``deterministic_mode`` stands for what Megatron demands with it: ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` (``cublas_workspace``
    says it alone). ``heads`` are those of BERT or T5 where they are not a decoder's; ``encoder_layers`` and
    ``encoder_sequence_length`` are of an encoder that stands beside the decoder (T5).
    ``layer_wise_optimizer`` says that Muon's state is shared out tensor by tensor, and whose share is told.
    ``use_precision_aware_optimizer`` and the dtypes are of Megatron's optimizer of that name, ``optimizer_offload_fraction`` is the
    share of its state that stands on the host (which needs that optimizer).
    ``data_parallel_sharding_strategy`` is Megatron-FSDP's, empty where that does not run. ``torch`` and ``transformer_engine`` are versions. ``expandable_segments`` is torch's allocator with them: it leaves no rest of a block unused.
    """

    gpu: str = ""
    gpu_memory: MemorySize | None = None
    gpu_capability: int | None = Field(default=None, ge=0, le=99)
    transformer_impl: Literal["transformer_engine", "local"] = "transformer_engine"
    attention_backend: Literal["auto", "flash", "fused", "unfused", "local"] = "auto"
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    deterministic_mode: bool = False
    cublas_workspace: Literal["default", "deterministic"] = "default"
    gradient_accumulation_fusion: bool = True
    bias_activation_fusion: bool = True
    masked_softmax_fusion: bool = True
    expandable_segments: bool = False
    fp8: bool = False
    optimizer: Literal["adam", "muon"] = "adam"
    layer_wise_optimizer: Literal["none", "fullest", "last"] = "none"
    use_precision_aware_optimizer: bool = False
    main_params_dtype: Literal["fp32", "fp16"] = "fp32"
    exp_avg_dtype: Literal["fp32", "fp16", "bf16", "fp8"] = "fp32"
    exp_avg_sq_dtype: Literal["fp32", "fp16", "bf16", "fp8"] = "fp32"
    store_param_remainders: bool = True
    optimizer_offload_fraction: float = Field(default=0.0, ge=0, le=1)
    heads: Literal["language", "bert", "bert-no-binary-head", "t5"] = "language"
    encoder_layers: int = Field(default=0, ge=0)
    encoder_sequence_length: int = Field(default=0, ge=0)
    data_parallel_sharding_strategy: Literal["", "no_shard", "optim", "optim_grads", "optim_grads_params"] = ""
    defer_embedding_wgrad_compute: bool = False
    wgrad_deferral_limit: int = Field(default=0, ge=0)
    torch: str = "2.10"
    transformer_engine: str = "2.11"

    @model_validator(mode="before")
    @classmethod
    def _allocator(cls, values: Any) -> Any:
        """Read torch's environment variable of its allocator, of which ``expandable_segments`` alone is predicted."""
        name = next((key for key in ALLOCATOR if isinstance(values, Mapping) and key in values), None)
        if name is None:
            return values
        rest = {key: value for key, value in values.items() if key != name}
        pairs = dict(part.partition(":")[::2] for part in str(values[name]).split(","))
        other = next((key for key, value in pairs.items() if key != "expandable_segments" or value.lower() not in ("true", "false")), None)
        if other is not None:
            raise ValueError(f"{name}: {other[:40]!r} is not predicted; nearest that works: {name}=expandable_segments:True")
        return {**rest, "expandable_segments": pairs["expandable_segments"].lower() == "true"}

    @field_validator("torch", "transformer_engine", mode="before")
    @classmethod
    def _of_two_numbers(cls, value: object) -> str:
        if not re.fullmatch(r"\d{1,3}\.\d{1,3}", str(value)):
            raise ValueError("must be a version of two numbers, such as 2.10")
        return str(value)

    @model_validator(mode="after")
    def _precision_aware(self) -> Software:
        said = self.model_fields_set & {"main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"}
        named = next((name for name in sorted(said) if getattr(self, name) != "fp32"), None)
        named = named or ("optimizer_offload_fraction" if self.optimizer_offload_fraction else None)
        if named and not self.use_precision_aware_optimizer:
            raise ValueError(f"{named} needs use_precision_aware_optimizer = true")
        return self

    @property
    def torch_workspace(self) -> int:
        """Return the bytes of one workspace of torch's cuBLAS handles: 32 MiB on Hopper, else :4096:2:16:8.

        aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize; from 2.12 on Blackwell is as Hopper (pull request 175344).
        """
        if self.deterministic_mode or self.cublas_workspace == "deterministic":
            return 32 * MIB
        large = self.facts.capability == 9 or (self.facts.capability > 9 and _version(self.torch) >= (2, 12))
        return 32 * MIB if large else 2 * 4 * MIB + 8 * 16 * 1024

    @property
    def keeps_placeholders(self) -> bool:
        """Return whether gradients handed to autograd in place of the real ones are kept (Transformer Engine from 2.3 on)."""
        return _version(self.transformer_engine) >= (2, 3)

    @property
    def facts(self) -> GpuFacts:
        """Return the facts of the GPU. Raises ``InputError`` for one that is not known."""
        return gpu_facts(self.gpu, self.gpu_memory, self.gpu_capability)

    @property
    def attention(self) -> str:
        """Return how attention runs: flash, fused or unfused."""
        if self.transformer_impl == "local" or self.attention_backend in ("unfused", "local"):
            return "unfused"
        return self.facts.attention if self.attention_backend == "auto" else self.attention_backend


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def software_on(cluster: ClusterFacts) -> Software:
    """Return the usual software on a cluster's GPU, and what the cluster says of that.

    >>> software_on(ClusterFacts(gpu="H100 SXM", gpu_memory="94 GiB")).facts.memory // 2**30
    94
    """
    said = {name: getattr(cluster, name) for name in ("gpu_memory", "gpu_capability") if getattr(cluster, name) is not None}
    return Software(gpu=cluster.gpu).model_copy(update=said)
