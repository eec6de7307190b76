"""One kind of communication of a step, and the table of all of them.

``elements`` and ``bytes`` are of the full tensor of one call (what all_gather puts out, what reduce_scatter takes in), as
nccl-tests count; ``count`` is calls by one rank in one optimizer step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from tokenwire.units import element_bytes

if TYPE_CHECKING:
    import polars as pl

Op = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send", "recv", "barrier"
]  # fmt: skip
Phase = Literal["data", "forward", "backward", "gradients", "optimizer", "loss", "setup"]

Role = Literal["layers", "embedding", "head", "loss"]
"""Which part of a stage issues a call; ``layers``: its layers, or the stage as a whole."""
Product = Literal["input", "weight"]
"""A product of the backward: the gradient of a layer's input, or of its weight."""

PHASES: tuple[Phase, ...] = ("setup", "data", "forward", "backward", "gradients", "optimizer", "loss")
"""The phases in the order of a step."""

COLUMNS = (
    "stage", "op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes", "parallelism", "what", "peer",
    "layers", "formula", "values", "source", "why", "role",
)  # fmt: skip
"""The columns of the step table, in order."""


class Operation(NamedTuple):
    """``count`` calls of ``op`` on a group by one rank of ``stage``; see the module for what ``elements`` means.

    ``parallelism`` is who demands it (dp tp sp pp cp ep fsdp); ``peer`` the stage at the other end of a send or receive;
    ``layers`` how many layers of the stage have it (0: not of a layer). ``formula`` gives the elements of one call in
    symbols, ``values`` the same with numbers. ``role`` is the part of the stage that issues the calls, ``overlapped`` the product
    of the backward that runs at the same time. ``what``, ``source`` and ``why`` are for people: no result depends on them.

    >>> Operation(0, "all_reduce", "tp", 2, "forward", 8, 1024, "bf16", "tp", "attention output").bytes
    2048
    """

    stage: int
    op: Op
    group: str
    group_size: int
    phase: Phase
    count: int  # type: ignore[assignment] # a tuple counts its entries by that name, which nobody needs here
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
    role: Role = "layers"
    overlapped: Product | None = None

    @property
    def call(self) -> tuple[object, ...]:
        """Return what determines the seconds of the calls: all fields but the stages and the texts for people."""
        return (*self[1:9], self.layers, self.role, self.overlapped)

    @property
    def bytes(self) -> int:
        """Return the bytes of the full tensor of one call."""
        return element_bytes(self.elements, self.dtype)

    def moved(self, stages: int) -> Operation:
        """Return what a stage says that is like this one, so many stages further on, and so are those whom it sends to."""
        if not stages:
            return self
        return self._replace(stage=self.stage + stages, peer=None if self.peer is None else self.peer + stages)


def spoken(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return the operations without those of groups of one, without calls that are never made and without empty tensors."""
    return tuple(
        row for row in operations
        if row.group_size > 1 and row.count > 0 and (row.elements > 0 or row.op == "barrier")
    )  # fmt: skip


def frame(operations: Iterable[Operation]) -> pl.DataFrame:
    """Return the step table (``COLUMNS``) of what is ``spoken``."""
    import polars as pl

    rows = spoken(operations)
    text, whole = pl.String, pl.Int64
    numbers = {"stage", "group_size", "count", "elements", "bytes", "peer", "layers"}
    schema = {name: whole if name in numbers else text for name in COLUMNS}
    return pl.DataFrame({name: [getattr(row, name) for row in rows] for name in COLUMNS}, schema=schema)
