"""Where a token is: on which ranks, and at which bytes of their message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenwire.figures import Figure
from tokenwire.journey.placement import Placement

if TYPE_CHECKING:
    from tokenwire.journey.journey import Journey


class Inner:
    """The token's place on its ranks: which context and tensor part of the sequence has it, and where in that part."""

    def __init__(self, journey: Journey, place: Placement, cuts: int) -> None:
        """Find the token; ``cuts`` is into how many parts a rank's piece of the sequence is cut."""
        plan, s = journey.plan(), journey.config.training.sequence_length
        self.b, self.h = journey.config.training.micro_batch, journey.model().architecture.hidden_size
        self.slot, self.cuts, self.c = place.slot, cuts, plan.cp
        position, length = place.position, s
        self.context = 0
        if plan.cp > 1:
            # Rank i has pieces i and 2c-1-i of 2c, so that all have the same work under a causal mask.
            piece = s // (2 * plan.cp)
            number, rest = divmod(position, piece)
            self.context = min(number, 2 * plan.cp - 1 - number)
            position, length = rest + (piece if number >= plan.cp else 0), s // plan.cp
        self.local = length // cuts
        self.part, self.row = divmod(position, self.local)


class Message:
    """Size of the message and offset of the token in it, in bytes of bfloat16."""

    def __init__(self, inner: Inner, dialect: str) -> None:
        """Lay the message out as the dialect does."""
        self.sequence_first = dialect == "megatron"
        b, h, rows = inner.b, inner.h, inner.local
        self.bytes = b * rows * h * 2
        self.length = h * 2
        if self.sequence_first:
            place, formula = inner.row * b + inner.slot, "(row·b + slot)·h·2"
            values = f"({inner.row}·{b} + {inner.slot})·{h:,}·2 B"
        else:
            place, formula = inner.slot * rows + inner.row, "(slot·rows + row)·h·2"
            values = f"({inner.slot}·{rows} + {inner.row})·{h:,}·2 B"
        self.offset = place * h * 2
        layout = f"[{rows}, {b}, {h:,}]" if self.sequence_first else f"[{b}, {rows}, {h:,}]"
        self.figure = Figure("offset of the token", self.offset, "B", formula, values, because=f"the message is {layout} in bf16")


def ranks_of(journey: Journey, place: Placement, *, tp: int) -> Callable[[int], int]:
    """Return the rank of a pipeline stage that works on the token, for the tensor-parallel rank ``tp``."""
    plan = journey.plan()
    sizes = [(axis, size) for axis, size in plan.grid.axes if axis not in ("tp", "pp", "cp")]
    where, rest = {"tp": tp, "cp": Inner(journey, place, 1).context}, place.replica
    for axis, size in sizes:
        where[axis] = rest % size
        rest //= size
    known = {axis for axis, _ in plan.grid.axes}
    return lambda stage: plan.grid.rank_of(**{axis: at for axis, at in {**where, "pp": stage}.items() if axis in known})
