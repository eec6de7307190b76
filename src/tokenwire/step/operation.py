"""One kind of communication of a step, and the table of all of them.

``elements`` and ``bytes`` are of the full tensor of one call (what all_gather puts out, what reduce_scatter takes in), as
nccl-tests count; ``count`` is calls by one rank in one optimizer step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokenwire.units import element_bytes

if TYPE_CHECKING:
    import polars as pl

Op = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send", "recv", "barrier"
]  # fmt: skip
Phase = Literal["data", "forward", "backward", "gradients", "optimizer", "loss", "setup"]

PHASES: tuple[Phase, ...] = ("setup", "data", "forward", "backward", "gradients", "optimizer", "loss")
"""The phases in the order of a step."""

COLUMNS = (
    "stage", "op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes", "parallelism", "what", "peer",
    "layers", "formula", "values", "source", "why",
)  # fmt: skip
"""The columns of the step table, in order."""


@dataclass(frozen=True)
class Operation:
    """``count`` calls of ``op`` on a group by one rank of ``stage``; see the module for what ``elements`` means.

    ``parallelism`` is who demands it (dp tp sp pp cp ep fsdp); ``peer`` the stage at the other end of a send or receive;
    ``layers`` how many layers of the stage have it (0: not of a layer). ``formula`` gives the elements of one call in
    symbols, ``values`` the same with numbers.

    >>> Operation(0, "all_reduce", "tp", 2, "forward", 8, 1024, "bf16", "tp", "attention output").bytes
    2048
    """

    stage: int
    op: Op
    group: str
    group_size: int
    phase: Phase
    count: int
    elements: int
    dtype: str
    parallelism: str
    what: str
    peer: int | None = None
    layers: int = 0
    formula: str = ""
    values: str = ""
    source: str = ""
    why: str = ""

    @property
    def bytes(self) -> int:
        """Return the bytes of the full tensor of one call."""
        return element_bytes(self.elements, self.dtype)


def frame(operations: Iterable[Operation]) -> pl.DataFrame:
    """Return the step table (``COLUMNS``); groups of one, calls that are never made and empty tensors are left out."""
    import polars as pl

    rows = [
        row for row in operations
        if row.group_size > 1 and row.count > 0 and (row.elements > 0 or row.op == "barrier")
    ]  # fmt: skip
    text, whole = pl.String, pl.Int64
    numbers = {"stage", "group_size", "count", "elements", "bytes", "peer", "layers"}
    schema = {name: whole if name in numbers else text for name in COLUMNS}
    return pl.DataFrame({name: [getattr(row, name) for row in rows] for name in COLUMNS}, schema=schema)
