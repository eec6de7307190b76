"""The recorder of dry runs in a real run, with the roots of calls that have one."""

from __future__ import annotations

from typing import Any

from tokenwire.measure.dryrun.record import Recorder

_ROOT = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3, "broadcast": 1}
"""Where the root stands among an operator's arguments, as a rank of the group (torch 2.13, torch/csrc/distributed/c10d/Ops.cpp)."""


class RootRecorder(Recorder):
    """Notes every call, and in ``roots`` beside each the root of its group, None where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[int | None] = []

    def note(self, name: str, args: tuple[Any, ...]) -> None:
        """Note one operator with its arguments."""
        super().note(name, args)
        place = _ROOT.get(name)
        root = args[place] if place is not None and place < len(args) and isinstance(args[place], int) else None
        self.roots += [root] * (len(self.calls) - len(self.roots))
