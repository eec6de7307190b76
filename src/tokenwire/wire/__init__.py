"""Bits: messages become packets, packets become frames, frames become symbols on a lane.

In: bytes of a message (or only their number) and a ``WireConfig``. Out: ``Framing`` (packets, bytes on the wire,
efficiency, each derived), ``Packet`` (real bytes, every field named), lanes and symbols, and captures: written
(pcap) and read (pcap, pcapng) as columns and flows.
"""

from tokenwire.wire.config import WireConfig
from tokenwire.wire.connection import Connection
from tokenwire.wire.framing import Framing, framing, framings, packet_count
from tokenwire.wire.message import Found, find, packet, packets, place_of
from tokenwire.wire.packet import Field, Packet, Place
from tokenwire.wire.transports import TRANSPORTS, Transport, register

__all__ = [
    "TRANSPORTS", "Connection", "Field", "Found", "Framing", "Packet", "Place", "Transport", "WireConfig", "find",
    "framing", "framings", "packet", "packet_count", "packets", "place_of", "register",
]  # fmt: skip
