"""How long the GPUs compute in a step, from FLOPs, the GPU's peak and a stated utilisation."""

from __future__ import annotations

from tokenwire.figures import Figure
from tokenwire.model import flops_per_token
from tokenwire.model.architecture import Architecture
from tokenwire.units import format_quantity

MFU = 0.40
"""Model FLOPs utilisation that is assumed where none is given.

Source: Llama Team 2024, "The Llama 3 Herd of Models", table 4: 38 to 43 % of the bf16 peak on 8,192 and 16,384 H100s.
"""


def compute_time(architecture: Architecture, *, tokens: int, s: int, gpus: int, peak: float, mfu: float) -> Figure:
    """Return the seconds that each GPU computes for one step of ``tokens`` tokens in sequences of ``s``.

    ``peak`` in FLOP/s of one GPU, ``mfu`` the share of it that a training step reaches. The work is taken as evenly shared;
    what a pipeline waits (its bubble) is not in it.
    """
    each = flops_per_token(architecture, s)
    seconds = each.value * tokens / (gpus * peak * mfu)
    values = (
        f"{format_quantity(each.value, 'FLOP')}·{tokens:,} / "
        f"({gpus:,}·{format_quantity(peak, 'FLOP/s')}·{format_quantity(mfu, '%')})"
    )
    return Figure(
        "time that the step computes", seconds, "s", "FLOPs a token · tokens / (GPUs · peak · MFU)", values,
        f"FLOPs: {each.source}; MFU assumed: Llama Team 2024, The Llama 3 Herd of Models, table 4",
        "without communication and without the pipeline's bubble",
    )  # fmt: skip
