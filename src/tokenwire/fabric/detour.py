"""Ways that are not the shortest: over a place in between that chance chooses (Valiant), or only where that pays (UGAL).

On a dragonfly few links join two groups, on a torus or HyperX few ways two switches: traffic between the same two crowds them
while others idle. ``valiant``: every flow between groups goes first to a random place in a third group, then on; each leg by a
shortest way. All links then carry about the same, each byte on about twice as many. ``ugal``: flows choose one after the
other, the largest first, between a shortest way and one such detour: the detour where q·H of the shortest way is more than
that of the detour, H the links of the way, q the seconds for which its busiest link is already taken (UGAL-G: known at once, for
the whole way). Groups: of a dragonfly(+) its groups, of a HyperX its switches, of a torus its chips.

Source: Valiant 1982, "A scheme for fast parallel communication"; Singh 2005, "Load-balanced routing in interconnection networks"
(UGAL); Kim, Dally, Scott and Abts 2008, "Technology-driven, highly-scalable dragonfly topology" (ISCA), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tokenwire.fabric.fabric import Ints


@dataclass(frozen=True)
class Places:
    """Where a way may turn: devices ``turns`` in the order of their groups, the ``group`` of each, and that of each GPU."""

    turns: Ints
    group: Ints
    of_gpu: Ints

    @cached_property
    def counts(self) -> Ints:
        """Return the places of each group."""
        return np.bincount(self.group, minlength=int(self.of_gpu.max(initial=0)) + 1)

    def between(self, src: Ints, dst: Ints, chance: npt.NDArray[np.uint64]) -> Ints:
        """Return for each pair of GPUs a place in neither's group; -1 inside a group, or where there is none.

        >>> places = Places(np.arange(10, 16), np.arange(6) // 2, np.array([0, 1, 2]))       # three groups of two places
        >>> places.between(np.array([0, 0, 1]), np.array([2, 0, 2]), np.array([5, 5, 4], dtype=np.uint64)).tolist()
        [13, -1, 10]
        """
        low, high = np.sort([self.of_gpu[src], self.of_gpu[dst]], axis=0)
        left = self.turns.size - self.counts[low] - self.counts[high]
        far = (low != high) & (left > 0)
        pick = (chance % np.maximum(left, 1).astype(np.uint64)).astype(np.int64)
        first = np.cumsum(self.counts) - self.counts
        for group in (low, high):
            pick += np.where(pick >= first[group], self.counts[group], 0)
        return np.where(far, self.turns[np.where(far, pick, 0)], -1)
