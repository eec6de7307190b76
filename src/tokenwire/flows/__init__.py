"""Flows: who is in whose way. The operations of a step become bytes between GPUs and on every link.

In: the step table, the plan, the fabric. Out of ``traffic``: a ``Traffic``: transfers between GPUs, bytes sent by each class
of ranks, by tier and on each link, and totals. ``simulate`` shares links among flows fairly (max-min) and says when each
ends. Rank r of the plan is GPU r of the fabric; a receive sends nothing: its bytes are those of the send.
"""

from tokenwire.flows.loads import link_bytes
from tokenwire.flows.traffic import Traffic, traffic

__all__ = ["Traffic", "link_bytes", "traffic"]
