"""On which GPU a golden run was, and on how many, where its row says so or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenwire.formats.megatron_arguments import whole
from validation.golden.corrections import Corrections

GPUS = {"dgx_a100": "A100", "dgx_h100": "H100", "dgx_gb200": "GB200"}
"""GPU of each platform that golden values name."""


def gpu_of(row: Mapping[str, Any]) -> str:
    """Return the GPU of a row by its variant, else by its platform.

    >>> gpu_of({"variant": "dev_dgx_gb200", "platform": "dgx_a100"})
    'GB200'
    """
    variant, platform = str(row.get("variant") or ""), str(row.get("platform") or "")
    # A variant that names a machine is surer than the platform, which is that of the case's name in some rows.
    for name, gpu in GPUS.items():
        if name.removeprefix("dgx_") in variant:
            return gpu
    # Variants without a platform in their name are of the machines that ran before there was more than one.
    return GPUS.get(platform, "A100")


def gpus_of(row: Mapping[str, Any], corrected: Corrections) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return the GPUs of a row, in words what is assumed of them, and the measured values that they were inferred from.

    Raises ``Unrepresented`` for sizes that are none.
    """
    args, given = row["args"], row.get("gpus")
    least = _of_a_model(args)
    experts = whole(args, "expert-model-parallel-size", 1) * whole(args, "pipeline-model-parallel-size", 1)
    experts *= whole(args, "expert-tensor-parallel-size", whole(args, "tensor-model-parallel-size", 1))
    least = max(least, experts if "num-experts" in args else 1)
    if given is not None and (said := whole(row, "gpus")) % least == 0:
        return said, (), ()
    if (world := corrected.gpus) is not None:
        return world, (f"{world} GPUs: the row does not tell; inferred from what the case has allocated",), corrected.inferred
    guess = least if least > 8 else _a_node(args, least)
    if given is not None:
        return guess, (f"{guess} GPUs: its {said} do not hold its plan",), ()
    return guess, (f"{guess} GPUs: the row does not say",), ()


def _a_node(args: Mapping[str, Any], least: int) -> int:
    """Return the GPUs of a node that a plan can have: 8, or as many copies of the model as its batch feeds."""
    samples = whole(args, "global-batch-size", 1) // whole(args, "micro-batch-size", 1) if "global-batch-size" in args else 0
    fitting = [gpus for gpus in (8, 4, 2, 1) if gpus % least == 0 and samples % max(gpus // _of_a_model(args), 1) == 0]
    return fitting[0] if fitting else 8


def _of_a_model(args: Mapping[str, Any]) -> int:
    """Return the GPUs of one copy of the model."""
    return whole(args, "tensor-model-parallel-size", 1) * whole(args, "pipeline-model-parallel-size", 1) * whole(args, "context-parallel-size", 1)
