"""Between whom a message travels: addresses of NICs, and the two ends' queue pairs, keys and counters."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire.errors import InputError
from tokenwire.fabric.fivetuple import address

Nic = tuple[int, int]
"""A NIC by its place: (node, NIC of that node)."""

MAX_NODE, MAX_NIC = 2**16 - 2, 255
"""Largest numbers that the address plan holds."""


@dataclass(frozen=True)
class Connection:
    """One direction of a reliable connection; ``source_qp`` matters only for the choice of the UDP source port.

    ``psn`` is the sequence number of the first packet (for TCP the sequence number of the first byte), ``time`` the
    sender's clock in milliseconds (TCP timestamps).
    """

    source: Nic = (0, 0)
    destination: Nic = (1, 0)
    source_qp: int = 0x000100
    qp: int = 0x000100
    psn: int = 0
    va: int = 0x7F00_0000_0000
    rkey: int = 0x0000_1000
    immediate: int = 0
    job: int = 1
    time: int = 0

    def __post_init__(self) -> None:
        """Check that every number fits its field."""
        for name, bits in (
            ("source_qp", 24),
            ("qp", 24),
            ("va", 64),
            ("rkey", 32),
            ("immediate", 32),
            ("job", 24),
        ):
            value = getattr(self, name)
            if not 0 <= value < 1 << bits:
                raise InputError(f"{name} = {value}", rule=f"must fit in {bits} bits")
        for node, nic in (self.source, self.destination):
            if not (0 <= node <= MAX_NODE and 0 <= nic <= MAX_NIC):
                raise InputError(
                    f"NIC {nic} of node {node}",
                    rule=f"addresses hold nodes 0 to {MAX_NODE:,} and NICs 0 to {MAX_NIC}",
                )


def mac(nic: Nic) -> int:
    """Return a NIC's MAC address: 02 (locally administered), 74:77 ("tw"), node, NIC.

    >>> f"{mac((3, 1)):012x}"
    '027477000301'
    """
    return 0x02_7477_000000 | nic[0] << 8 | nic[1]


NEXT_HOP = 0x00_005E_0001_01
"""The MAC address that frames are sent to: the leaf switch, which routes, by the address of a virtual router (RFC 9568, 7.3)."""


def ipv4(nic: Nic) -> int:
    """Return a NIC's IPv4 address, 10.NIC.node: the one that switches hash.

    >>> from ipaddress import IPv4Address
    >>> str(IPv4Address(ipv4((3, 1))))
    '10.1.0.4'
    """
    return address(*nic)


def ipv6(nic: Nic) -> int:
    """Return a NIC's IPv6 address (and its GID), fd74:7769:7265:NIC::node.

    >>> from ipaddress import IPv6Address
    >>> str(IPv6Address(ipv6((3, 1))))
    'fd74:7769:7265:1::4'
    """
    return 0xFD74_7769_7265 << 80 | nic[1] << 64 | nic[0] + 1


def lid(nic: Nic) -> int:
    """Return a port's local identifier in an InfiniBand subnet: 1 + node·16 + NIC, at most 0xBFFF.

    Raises ``InputError`` where a subnet has no more identifiers. Source of the limit: InfiniBand Architecture
    Specification, volume 1, chapter 4.1.3 (unicast LIDs).
    """
    value = 1 + nic[0] * 16 + nic[1]
    if value > 0xBFFF or nic[1] > 15:
        raise InputError(
            f"NIC {nic[1]} of node {nic[0]}", rule="an InfiniBand subnet has 49,151 identifiers of ports"
        )
    return value
