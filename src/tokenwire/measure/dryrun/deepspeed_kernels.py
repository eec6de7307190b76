"""Stand-ins for the kernels that quantise in ZeRO++, which run on accelerators only: zeros of the shapes that they give.

Shapes: DeepSpeed 0.19, csrc/quantization/pt_binding.cpp (quantize_kernel, dequantize, ds_swizzle_quant, quantized_reduction).
What calls for them, and what is sent, is DeepSpeed's own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


class Quantizer:
    """The functions of DeepSpeed's quantizer that ZeRO++ uses; numbers of 4 bits are two in a byte."""

    Symmetric = 0

    @staticmethod
    def quantize(values: Any, groups: int, bits: int, _: Any) -> tuple[Any, Any]:
        """Return bytes and one scale a group."""
        shape = (*values.shape[:-1], values.shape[-1] * bits // 8)
        return torch.zeros(shape, dtype=torch.int8), torch.zeros(groups)

    @staticmethod
    def dequantize(values: Any, scales: Any, groups: int, bits: int, _: Any) -> Any:
        """Return numbers of 16 bits."""
        return torch.zeros((*values.shape[:-1], values.shape[-1] * 8 // bits), dtype=torch.float16)

    @staticmethod
    def swizzle_quant(values: Any, groups: int, bits: int, *_: Any) -> tuple[Any, Any]:
        """Return bytes and scales, ordered for the ranks of a node."""
        return torch.zeros(values.numel() * bits // 8, dtype=torch.int8), torch.zeros(groups)

    @staticmethod
    def quantized_reduction(values: Any, scales: Any, into: int, out: int, bits: int, _: Any, devices: int) -> tuple[Any, Any]:
        """Return the sum over the ranks of a node, quantised again."""
        return torch.zeros((*values.shape[:-1], values.shape[-1] // devices), dtype=torch.int8), torch.zeros(out)


def stand_in() -> None:
    """Let DeepSpeed load these in the place of its kernels."""

    class Builder:
        @staticmethod
        def load() -> type[Quantizer]:
            return Quantizer

    import_module("deepspeed").ops.op_builder.QuantizerBuilder = Builder
    import_module("deepspeed.ops.op_builder").__dict__["QuantizerBuilder"] = Builder
