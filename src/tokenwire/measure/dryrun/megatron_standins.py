"""Stand-ins for what needs an accelerator and says nothing on the wire: attention itself, normalisation, whole products."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear


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
        """Return [s, b, heads·d_v] for queries [s, b, heads, d], keys [s, b, groups, d] and values [s, b, groups, d_v]."""
        s, b, _, d = query.shape
        mixed = query + key.mean(dim=2, keepdim=True)
        if value.shape[-1] != d:
            # Values of another width than keys: each number counts, so that all of it has a gradient.
            mixed = mixed.mean(dim=-1, keepdim=True)
        mixed = mixed + value.mean(dim=2, keepdim=True)
        return mixed.reshape(s, b, -1)


class WholeLinear(torch.nn.Module):
    """A product that every tensor-parallel rank holds whole, as Transformer Engine's linear layer in its mode "duplicated".

    Its gradient is summed over the tensor-parallel ranks where each saw a part of the sequence (megatron-core
    extensions/transformer_engine.py, TELinear).
    """

    def __init__(self, size: int, out: int, *, config: Any, **unused: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(out, size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the product and no bias."""
        return torch.nn.functional.linear(x, self.weight), None


class NormedColumnParallelLinear(ColumnParallelLinear):
    """A column-parallel product with the norm of its input inside, its weight first, as TELayerNormColumnParallelLinear."""

    def __init__(self, size: int, out: int, *, config: Any, **rest: Any) -> None:
        super().__init__(size, out, config=config, **rest)
        names = ["layer_norm_weight"] if config.normalization == "RMSNorm" else ["layer_norm_weight", "layer_norm_bias"]
        of_norm = {name: torch.nn.Parameter(torch.ones(size, dtype=config.params_dtype)) for name in names}
        for parameter in of_norm.values():
            parameter.sequence_parallel = config.sequence_parallel
        others = dict(self._parameters)
        self._parameters.clear()
        self._parameters.update({**of_norm, **others})

    def forward(self, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        """Return the product of the scaled and shifted input."""
        scaled = x * self._parameters["layer_norm_weight"]
        shift = self._parameters.get("layer_norm_bias")
        return super().forward(scaled if shift is None else scaled + shift, *rest, **named)
