"""How messages travel, one module a transport; each registers itself, and outsiders do so by an entry point.

A ``Transport`` says which layers stand around a payload, how much payload a packet takes, and how a packet's bytes are
made. Outsiders name theirs under the entry point group ``tokenwire.transports``.
"""

from tokenwire.wire.transports import infiniband, rocev2, tcp, uet
from tokenwire.wire.transports.transport import PAYLOAD, TRANSPORTS, Layer, Transport, register, transport_of

__all__ = [
    "PAYLOAD", "TRANSPORTS", "Layer", "Transport", "infiniband", "register", "rocev2", "tcp", "transport_of", "uet"
]  # fmt: skip
