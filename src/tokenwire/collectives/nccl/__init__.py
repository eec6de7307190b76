"""What NCCL picks: its tuner as tables. Which algorithm, protocol and channels for a size, and the time it expects.

In: a ``Machine`` (generation of GPU, nodes, ranks a node, rates of NVLink and NICs), an operation, the bytes of the full
tensor, and the settings that overrule the choice (``overrides.read(["NCCL_ALGO=Ring"])``). Out: ``choose`` (one call),
``times`` (every algorithm and protocol), ``graphs`` (the channels found), ``crossings`` (what truly crosses each link).
The numbers are those that NCCL decides by, an estimate of its authors: how far they are from measured runs is in
docs/collectives.md.
"""

from tokenwire.collectives.nccl.choice import Choice, choose, times
from tokenwire.collectives.nccl.crossing import Crossing, bound_seconds, crossings
from tokenwire.collectives.nccl.graph import Graph, graphs
from tokenwire.collectives.nccl.machine import Machine
from tokenwire.collectives.nccl.overrides import Overrides
from tokenwire.collectives.nccl.overrides import read as read_overrides
from tokenwire.collectives.nccl.protocols import link_bytes
from tokenwire.collectives.nccl.tuner import Estimate, communicator_channels, estimates

__all__ = ["Choice", "Crossing", "Estimate", "Graph", "Machine", "Overrides", "bound_seconds", "choose",
           "communicator_channels", "crossings", "estimates", "graphs", "link_bytes", "read_overrides", "times"]  # fmt: skip
