"""Links that groups share: by how much each kind of communication is slower on the fabric than its NICs alone would make it.

A call's own time (``communication``) has the share of a node's NICs that its group has beside the other groups of its kind. What the
network behind the NICs adds (oversubscribed leaves, ways that a hash puts on one link) is asked of ``flows``: all groups of a kind send at
once, links are shared max-min fairly, and

    factor = seconds of the last flow, without the latency of its way / most bytes on one link between a GPU or NIC and its first switch, over that link's rate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenwire.flows.contention import Kind, kinds

if TYPE_CHECKING:
    from tokenwire.flows import Traffic


def slowdowns(traffic: Traffic) -> dict[tuple[str, str, str], float]:
    """Return the factor, at least 1, by (operation, group, phase). Raises ``InputError`` for more flows than are simulated."""
    out: dict[tuple[str, str, str], float] = {}
    for kind in kinds(traffic, traffic.fabric):
        key = (kind.op, kind.group, kind.phase)
        out[key] = max(out.get(key, 1.0), factor(kind))
    return out


def factor(kind: Kind) -> float:
    """Return how many times longer a kind takes than the links at its ends need, at least 1."""
    fabric = kind.fabric
    names = np.repeat([name for name, _ in fabric.kinds], [count for _, count in fabric.kinds])
    ends = np.isin(names[fabric.src], ("gpu", "nic")) | np.isin(names[fabric.dst], ("gpu", "nic"))
    needed = float((kind.link_bytes / fabric.rate)[ends].max(initial=0.0))
    # The way through the switches takes its time with or without others.
    moving = kind.shared.makespan - float(kind.ways.latency.max(initial=0.0))
    return max(1.0, moving / needed) if needed else 1.0
