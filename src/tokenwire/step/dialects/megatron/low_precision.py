"""fp8 in Transformer Engine's layers: which weights are kept in it, and what is gathered in it along the sequence.

Activations between layers stay in bf16, and so does every sum (all_reduce, reduce_scatter). With sequence parallelism the
inputs of products are gathered *after* they were cast: a byte a number, and with them the scales of their blocks. A
recipe with one scale a tensor needs none gathered; where that scale is of this very tensor (``tensorwise``) the largest
value is first agreed upon.

| recipe | a scale for | scales gathered with rows | with columns |
|---|---|---|---|
| delayed, tensorwise | a tensor | none | none |
| mxfp8 | 32 numbers | 1 byte, w/32 a row, up to a multiple of 4 | n/32 · w, up to a multiple of 128 |
| blockwise | 128 numbers | fp32, w/128 · n, up to a multiple of 4 | n/128 · w, up to a multiple of 4 |

n rows are on a rank, w is the width. Rules: TransformerEngine 2.18 (its kernels need an accelerator: read, not run),
pytorch/distributed.py (gather_along_first_dim, _all_gather_fp8, _all_gather_mxfp8, _start_all_gather_fp8_blockwise),
pytorch/module/_common.py (set_quantizer_amax_reduction_group), pytorch/module/linear.py (_linear_backward), pytorch/tensor/
(get_scale_shape of MXFP8Quantizer and Float8BlockQuantizer).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tokenwire.model.architecture import Tensor
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Operation

Usage = Literal["rows", "columns", "both"]
"""Along which dimension a product reads what is gathered: rows forward, columns for a weight gradient, both for a gradient
of which both products of the backward are made."""

MXFP8_BLOCK = 32
BLOCK = 128
_TE = "TransformerEngine pytorch/distributed.py"


def in_fp8(sizes: Sizes, layer: int) -> bool:
    """Return whether the products of a layer are in fp8."""
    if sizes.plan.training.precision != "fp8":
        return False
    if layer >= sizes.own:
        return not sizes.config.keep_mtp_spec_in_bf16
    return not sizes.config.in_16_bits(layer, sizes.own)


def kept_in_fp8(sizes: Sizes, tensor: Tensor) -> bool:
    """Return whether a parameter itself is kept in fp8: the weights of products inside layers, not embedding or head."""
    if not (sizes.config.fp8_param_gather and tensor.layer is not None and in_fp8(sizes, tensor.layer)):
        return False
    products = ("mixer", "feed_forward", "shared_experts", "mtp")
    return tensor.name.endswith(".weight") and (
        tensor.part == "experts" or (tensor.part in products and len(tensor.shape) == 2)
    )


def by_precision(sizes: Sizes, stage: Stage) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """Yield (whether in fp8, layers of the stage) for the two kinds of layers, those that there are."""
    if sizes.plan.training.precision != "fp8":
        yield False, stage.layers
        return
    for low in (False, True):
        layers = tuple(layer for layer in stage.layers if in_fp8(sizes, layer) == low)
        if layers:
            yield low, layers


def gathered(sizes: Sizes, row: Operation, width: int, usage: Usage) -> Iterator[Operation]:
    """Yield the calls that take the place of ``row``, the all_gather in bf16 of rows of ``width``.

    The input is cast for this gather, but for ``usage`` "columns": it was kept in fp8 since the forward.
    """
    recipe = sizes.config.fp8_recipe
    rows = sizes.tokens // sizes.plan.tp
    data = row._replace(dtype="fp8", why=f"{row.why}; it is cast to fp8 before", source=f"{_TE} gather_along_first_dim")
    if recipe in ("delayed", "tensorwise"):
        if recipe == "tensorwise" and usage != "columns":
            yield data._replace(
                op="all_reduce", elements=1, dtype="fp32", what=f"largest value of {row.what}", formula="1", values="1", overlapped=None,
                source="TransformerEngine pytorch/module/_common.py set_quantizer_amax_reduction_group",
                why="all parts of the sequence are cast with one scale, which the largest value among them gives",
            )  # fmt: skip
        yield data
        return
    block = MXFP8_BLOCK if recipe == "mxfp8" else BLOCK
    if rows % block or width % block:
        # Blocks that are not whole are not cast before the gather.
        yield row._replace(why=f"{row.why}; its {rows} rows are no whole blocks of {block}, so it is gathered as it is")
        return
    for name in ("rows", "columns"):
        if usage not in (name, "both"):
            continue
        formula, elements = _scales(recipe, rows, width, name)
        yield data._replace(
            dtype="uint8" if recipe == "mxfp8" else "fp32", elements=sizes.plan.tp * elements,
            what=f"{row.what}, scales of {name}", formula=f"t·{formula}", values=f"{sizes.plan.tp}·{elements:,}",
            why=f"a scale for {block} numbers goes with them", overlapped=None,
        )  # fmt: skip
        yield data._replace(what=f"{row.what}, {name}" if usage == "both" else row.what)


def _scales(recipe: str, rows: int, width: int, usage: str) -> tuple[str, int]:
    if recipe == "mxfp8":
        if usage == "rows":
            return "n·up(w/32, 4)", rows * up(width // MXFP8_BLOCK, 4)
        return "n/32·up(w, 128)", rows // MXFP8_BLOCK * up(width, 128)
    if usage == "rows":
        return "w/128·up(n, 4)", width // BLOCK * up(rows, 4)
    return "n/128·up(w, 4)", rows // BLOCK * up(width, 4)


def up(number: int, multiple: int) -> int:
    """Return ``number`` rounded up to a multiple.

    >>> up(5, 4), up(8, 4)
    (8, 8)
    """
    return -(-number // multiple) * multiple
