"""Synthetic captures: what messages put on the link of a NIC, packet by packet, with times and acknowledgements.

In: a table of messages (``MESSAGES``) and a ``WireConfig``. Out: records of a pcap, streamed in pieces of bounded size.
"""

from tokenwire.wire.synthesis.capture import packet_total, synthesize
from tokenwire.wire.synthesis.export import Written, export_capture, read_nic
from tokenwire.wire.synthesis.messages import MESSAGES, busiest_nic, messages_of_nic, scheduled

__all__ = [
    "MESSAGES", "Written", "busiest_nic", "export_capture", "messages_of_nic", "packet_total", "read_nic", "scheduled",
    "synthesize",
]  # fmt: skip
