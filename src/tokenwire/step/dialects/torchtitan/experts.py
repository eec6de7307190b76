"""In work."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Operation


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield nothing yet."""
    yield from ()
