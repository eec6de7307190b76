"""The rank grid: which rank stands where, and who forms a group with whom.

An axis is a parallelism with its size. The first axis varies fastest, so consecutive ranks differ in it: Megatron's
order "tp-cp-ep-dp-pp" is ``Grid((("tp", t), ("cp", c), ("dp", d), ("pp", p)))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Axes with their sizes, fastest first.

    >>> grid = Grid((("tp", 2), ("dp", 2), ("pp", 2)))
    >>> grid.world, grid.coordinates(5), grid.group_of(5, "dp").tolist()
    (8, {'tp': 1, 'dp': 0, 'pp': 1}, [5, 7])
    >>> grid.groups("tp").tolist()
    [[0, 1], [2, 3], [4, 5], [6, 7]]
    """

    axes: tuple[tuple[str, int], ...]

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return math.prod(size for _, size in self.axes)

    def size(self, axis: str) -> int:
        """Return the size of an axis; an axis that is not there has size 1."""
        return dict(self.axes).get(axis, 1)

    def strides(self) -> dict[str, int]:
        """Return by how much the rank grows for one step along each axis."""
        out, stride = {}, 1
        for name, size in self.axes:
            out[name] = stride
            stride *= size
        return out

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the rank's place on every axis."""
        strides = self.strides()
        return {name: rank // strides[name] % size for name, size in self.axes}

    def rank_of(self, **place: int) -> int:
        """Return the rank at a place; axes not named count as 0."""
        strides = self.strides()
        return sum(place.get(name, 0) * strides[name] for name, _ in self.axes)

    def groups(self, *axes: str) -> Ranks:
        """Return all groups along one or more axes, shape (groups, members), members in ascending rank order.

        With several axes (``"dp", "cp"``) a group is their product.
        """
        cube = np.arange(self.world, dtype=np.int64).reshape([size for _, size in reversed(self.axes)])
        names = [name for name, _ in reversed(self.axes)]
        inside = [i for i, name in enumerate(names) if name in axes]
        outside = [i for i, name in enumerate(names) if name not in axes]
        members = math.prod(self.size(name) for name in axes)
        return cube.transpose(outside + inside).reshape(-1, members)

    def group_of(self, rank: int, *axes: str) -> Ranks:
        """Return the members of the group that ``rank`` is in, ascending."""
        place = self.coordinates(rank)
        strides = self.strides()
        base = rank - sum(place[axis] * strides[axis] for axis in axes if axis in place)
        offsets = np.zeros(1, dtype=np.int64)
        for name, size in self.axes:
            if name in axes:
                offsets = (np.arange(size, dtype=np.int64)[:, None] * strides[name] + offsets[None, :]).reshape(-1)
        return np.sort(base + offsets)
