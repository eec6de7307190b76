"""The recorder of dry runs in a real run, with the roots of calls that have one, and how far an all_to_all hands all of a tensor on."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from tokenwire.measure.dryrun.record import Recorder

_ROOT = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3, "broadcast": 1}
"""Where the root stands among an operator's arguments, as a rank of the group (torch 2.13, torch/csrc/distributed/c10d/Ops.cpp)."""


class RootRecorder(Recorder):
    """Notes every call, and beside each the root of its group in ``roots`` and in ``shifts`` by how many members a tensor is handed on, else None."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[int | None] = []
        self.shifts: list[int | None] = []

    def note(self, name: str, args: tuple[Any, ...]) -> None:
        """Note one operator with its arguments."""
        super().note(name, args)
        place = _ROOT.get(name)
        root = args[place] if place is not None and place < len(args) and isinstance(args[place], int) else None
        self.roots += [root] * (len(self.calls) - len(self.roots))
        self.shifts += [_shift(name, args, self.calls[-1].members)] * (len(self.calls) - len(self.shifts))


def _shift(name: str, args: tuple[Any, ...], members: tuple[int, ...]) -> int | None:
    # _c10d_functional.all_to_all_single(input, output_split_sizes, input_split_sizes, group_name)
    pieces = [place for place, size in enumerate(args[2]) if size] if name == "all_to_all_single" else []
    if len(pieces) != 1 or len(members) < 2:
        return None
    return (pieces[0] - sorted(members).index(dist.get_rank())) % len(members)
