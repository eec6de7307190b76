"""Needs: what the network must offer.

In: the operations of a step, the plan, the architecture, the traffic over a fabric and the framing. Out of
``requirements``: figures, each with formula, values and source: bytes a GPU sends by parallelism inside its node and
outside, the time that the step computes, bandwidth for a given share of exposed communication (two bounds: nothing
overlaps, everything does), largest message, packets a second, bisection bandwidth, oversubscription that is tolerated.
"""

from tokenwire.needs.compute import MFU
from tokenwire.needs.messages import messages
from tokenwire.needs.requirements import requirements
from tokenwire.needs.volumes import by_medium

__all__ = ["MFU", "by_medium", "messages", "requirements"]
