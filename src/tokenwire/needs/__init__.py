"""Needs: what the network must offer.

In: the operations of a step, the plan, the architecture, the traffic over a fabric and the framing. Out of
``requirements``: figures, each with formula, values and source: bytes a GPU sends by parallelism inside its node and
outside, the time that the step computes, bandwidth for a given share of exposed communication (two bounds: nothing
overlaps, everything does), largest message, packets a second, bisection bandwidth, oversubscription that is tolerated.

With time: ``Timed`` is a plan on its cluster and on others like it; out of ``timed_requirements`` come the rates and latencies at which
the network costs no more than is asked for (found on the time line), buffers, queue pairs and storage. ``largest`` says how large a
cluster may grow, ``plans_of`` which plans suit it.
"""

from tokenwire.needs.by_time import timed_requirements
from tokenwire.needs.compute import MFU
from tokenwire.needs.growth import largest
from tokenwire.needs.messages import messages
from tokenwire.needs.plans import plans_of
from tokenwire.needs.requirements import requirements
from tokenwire.needs.timed import Timed
from tokenwire.needs.volumes import by_medium

__all__ = ["MFU", "Timed", "by_medium", "largest", "messages", "plans_of", "requirements", "timed_requirements"]
