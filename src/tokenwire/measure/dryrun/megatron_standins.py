"""Stand-ins for kernels that need an accelerator and say nothing on the wire: attention itself and normalisation."""

from __future__ import annotations

from typing import Any

import torch


class PlainNorm(torch.nn.Module):
    """A norm with the parameters and attributes that Megatron's fused norms have."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **unused: Any) -> None:
        super().__init__()
        names = ["weight"] if config.normalization == "RMSNorm" else ["weight", "bias"]
        self.with_bias = len(names) == 2
        for name in names:
            parameter = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
            parameter.sequence_parallel = config.sequence_parallel
            self.register_parameter(name, parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input scaled and shifted: every parameter gets a gradient."""
        out = x * self.weight
        return out + self.bias if self.with_bias else out


class CoreAttention(torch.nn.Module):
    """Something of attention's shapes that depends on queries, keys and values."""

    def __init__(self, config: Any, *unused: Any, **unused_too: Any) -> None:
        super().__init__()
        self.config = config

    def forward(self, query: Any, key: Any, value: Any, *unused: Any, **unused_too: Any) -> torch.Tensor:
        """Return [s, b, heads·d] for queries [s, b, heads, d] and keys and values [s, b, groups, d]."""
        s, b = query.shape[:2]
        mixed = query + key.mean(dim=2, keepdim=True) + value.mean(dim=2, keepdim=True)
        return mixed.reshape(s, b, -1)
