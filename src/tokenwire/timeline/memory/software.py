"""What shapes memory beyond model, training and plan: the software that runs them, by Megatron's own names."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import Field

from tokenwire.config import Section
from tokenwire.errors import unknown
from tokenwire.units import parse_bytes

MIB = 2**20


class Software(Section):
    """Options of the framework and its libraries that change what stands in memory.

    ``attention_backend`` "auto" is what Transformer Engine prefers on the GPU. Dropout is off unless it is said.
    ``deterministic_mode`` stands for what Megatron demands with it: ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` (``cublas_workspace``
    says it alone). ``expandable_segments`` is torch's allocator with them: it leaves no rest of a block unused.
    """

    gpu: str = "H100"
    transformer_impl: Literal["transformer_engine", "local"] = "transformer_engine"
    attention_backend: Literal["auto", "flash", "fused", "unfused", "local"] = "auto"
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    deterministic_mode: bool = False
    cublas_workspace: Literal["default", "deterministic"] = "default"
    gradient_accumulation_fusion: bool = True
    bias_activation_fusion: bool = True
    masked_softmax_fusion: bool = True
    expandable_segments: bool = False
    fp8: bool = False

    @property
    def facts(self) -> GpuFacts:
        """Return the facts of the GPU. Raises ``InputError`` for one that is not known."""
        return gpu_facts(self.gpu)

    @property
    def attention(self) -> str:
        """Return how attention runs: flash, fused or unfused."""
        if self.transformer_impl == "local" or self.attention_backend in ("unfused", "local"):
            return "unfused"
        return self.facts.attention if self.attention_backend == "auto" else self.attention_backend


@dataclass(frozen=True)
class GpuFacts:
    """``memory`` in bytes, the major compute ``capability``, and the ``attention`` that is preferred on it."""

    name: str
    title: str
    memory: int
    capability: int
    attention: str
    source: str

    @property
    def torch_workspace(self) -> int:
        """Return the bytes of one workspace of torch's cuBLAS handles: 32 MiB on Hopper, else :4096:2:16:8.

        torch 2.10, aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize; later versions count Blackwell as Hopper.
        """
        return 32 * MIB if self.capability == 9 else 2 * 4 * MIB + 8 * 16 * 1024

    @property
    def engine_workspace(self) -> int:
        """Return the bytes of Transformer Engine's cuBLAS workspace (pytorch/cpp_extensions/gemm.py: 32 MiB from Hopper on)."""
        return 32 * MIB if self.capability >= 9 else 4 * MIB


@cache
def _catalog() -> dict[str, dict[str, Any]]:
    return tomllib.loads((resources.files("tokenwire.timeline.memory") / "catalog" / "gpus.toml").read_text("utf-8"))


@cache
def gpu_facts(name: str) -> GpuFacts:
    """Return the facts of a GPU by a name of it, as clusters write it. Raises ``InputError`` with the known ones.

    >>> gpu_facts("H100 SXM").capability, gpu_facts("a100").engine_workspace
    (9, 4194304)
    """
    wanted = name.lower()
    best: tuple[int, str] | None = None
    for key, facts in _catalog().items():
        for alias in (key, *facts["aliases"]):
            found = alias.lower()
            # The longest name that is part of what was written: "GB200" before "B200".
            if found in wanted and (best is None or len(found) > best[0]):
                best = len(found), key
    if best is None:
        raise unknown("GPU", name[:60], _catalog(), where="[cluster]")
    facts = _catalog()[best[1]]
    return GpuFacts(best[1], facts["title"], parse_bytes(facts["memory"]), facts["capability"], facts["attention"], facts["source"])


def known_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs whose memory is known.

    >>> "b200" in known_gpus()
    True
    """
    return tuple(_catalog())
