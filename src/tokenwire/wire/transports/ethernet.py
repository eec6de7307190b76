"""What every transport over Ethernet stands on: preamble, MAC, VLAN, IP below; FCS and gap at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.wire import headers
from tokenwire.wire.transports.transport import Layer

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig

MINIMUM_FRAME = 64
"""Bytes of the shortest frame, from the destination address to the FCS (IEEE 802.3, clause 4A.4.2, minFrameSize)."""


def below(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers up to and with IP."""
    tag = (Layer(headers.VLAN),) if config.vlan is not None else ()
    return (
        Layer(headers.PREAMBLE, inside=False),
        Layer(headers.ETHERNET),
        *tag,
        Layer(headers.IPV4 if config.ip_version == 4 else headers.IPV6),
    )


def end() -> tuple[Layer, ...]:
    """Return the layers that close an Ethernet packet."""
    return (Layer(headers.FCS), Layer(headers.GAP, inside=False))
