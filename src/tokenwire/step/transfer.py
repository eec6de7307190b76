"""What a rank copies between its GPU and the host in a step, where model state stands on the host: no collective, the same table form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from tokenwire.step.operation import Phase

if TYPE_CHECKING:
    import polars as pl

Direction = Literal["to_host", "to_gpu", "to_nvme", "from_nvme"]
"""``to_host`` and ``to_gpu`` cross the link between GPU and host, the others that between the host and a drive."""
COLUMNS = ("stage", "direction", "phase", "bytes", "what", "formula", "values", "source")
"""The columns of the table, in order."""


class Transfer(NamedTuple):
    """``bytes`` that one rank of ``stage`` moves in one optimizer step, all micro-batches together.

    ``overlapped``: whether the framework computes meanwhile. ``what``, ``formula``, ``values`` and ``source`` are for people.
    """

    stage: int
    direction: Direction
    phase: Phase
    bytes: float
    what: str
    overlapped: bool = True
    formula: str = ""
    values: str = ""
    source: str = ""


def frame(transfers: Iterable[Transfer]) -> pl.DataFrame:
    """Return the table (``COLUMNS``), sizes in whole bytes."""
    import polars as pl

    rows = [(x.stage, x.direction, x.phase, round(x.bytes), x.what, x.formula, x.values, x.source) for x in transfers]
    schema = {name: pl.Int64 if name in ("stage", "bytes") else pl.String for name in COLUMNS}
    return pl.DataFrame(rows, schema=schema, orient="row")
