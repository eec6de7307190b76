"""Gloo over TCP: which messages a call puts on which connection, for any group and any size.

``messages(op, n, size_bytes)`` is a table (``PAIRS``) of payload and number of messages by sender and receiver. Every message
costs 144 bytes besides its payload: sender to receiver a header of 48 with the data and 48 to announce it, receiver to sender
48 to grant it; ``on_connections`` adds these. Sizes are those of the full tensor, as everywhere in this room, but for ``send``.

This is what torch 2.13 does with gloo: reduce_scatter is carried out as an all_reduce. Source: pytorch/gloo at 70dc360
(gloo/*.cc, gloo/transport/tcp/pair.cc) and measurement over TCP (tests/collectives/test_gloo_measured.py).
"""

from tokenwire.collectives.gloo.calls import CALLS, Sent, messages, sent
from tokenwire.collectives.gloo.pairs import HEADER_BYTES, MESSAGE_BYTES, PAIRS, on_connections, summed
from tokenwire.collectives.gloo.ring import SEGMENT_BYTES, segments

__all__ = [
    "CALLS", "HEADER_BYTES", "MESSAGE_BYTES", "PAIRS", "SEGMENT_BYTES", "Sent", "messages", "on_connections", "segments", "sent", "summed"
]  # fmt: skip
