"""What a network of hosts is asked to be, and what one that stands looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenwire.errors import InputError

MOST_RANKS = 64
SMALLEST_MTU, LARGEST_MTU = 576, 65_535
STORE_PORT = 29_500


@dataclass(frozen=True)
class NetworkConfig:
    """``kind`` auto takes namespaces where it may make them. ``rate`` in bytes/s and ``delay`` in s shape what each host sends.

    ``offloads`` leaves the cutting of large sends to the (virtual) card, so that captures have frames larger than the MTU.
    ``ranks_per_node``: so many ranks share a bridge of their own (a leaf), and the leaves are joined by another (the spine);
    ``routed``: by a router, a subnet a leaf.
    """

    ranks: int = 4
    kind: Literal["auto", "namespaces", "loopback"] = "auto"
    mtu: int = 1500
    offloads: bool = False
    rate: float | None = None
    delay: float | None = None
    ranks_per_node: int | None = None
    routed: bool = False

    @property
    def per_node(self) -> int:
        """Ranks that share a bridge: all, where no number is given."""
        return self.ranks_per_node or self.ranks

    def __post_init__(self) -> None:
        """Raise ``InputError`` for what cannot be."""
        if not 2 <= self.ranks <= MOST_RANKS:
            raise InputError(f"ranks = {self.ranks}", rule=f"must be 2 to {MOST_RANKS}", nearest=str(min(max(self.ranks, 2), MOST_RANKS)))
        if not SMALLEST_MTU <= self.mtu <= LARGEST_MTU:
            raise InputError(f"mtu = {self.mtu} B", rule=f"must be {SMALLEST_MTU} to {LARGEST_MTU:,} B",
                             nearest=f"{min(max(self.mtu, SMALLEST_MTU), LARGEST_MTU)}")  # fmt: skip
        if self.rate is not None and not 1e3 <= self.rate <= 1e11:
            raise InputError(f"rate = {self.rate:g} B/s", rule="must be 8 kb/s to 800 Gb/s", nearest="1 Gb/s")
        if self.delay is not None and not 0 <= self.delay <= 10:
            raise InputError(f"delay = {self.delay:g} s", rule="must be 0 to 10 s", nearest="1 ms")
        k = self.ranks_per_node
        if k is not None and (k < 1 or self.ranks % k):
            raise InputError(f"ranks per node = {k}", rule=f"must divide the {self.ranks} ranks", nearest="1")
        if self.routed and (k is None or k == self.ranks):
            raise InputError("routed", rule="joins nodes: there must be more than one", nearest=f"--ranks-per-node {_half(self.ranks)}")


@dataclass(frozen=True)
class Host:
    """One rank's host."""

    rank: int
    address: str
    interface: str


@dataclass(frozen=True)
class Network:
    """Hosts by rank; ``said`` tells a reader which kind it is and why; ``taps`` are where frames can be captured.

    A tap is a command prefix, an interface, and the direction to look at; over all taps every frame is seen once. ``namespaces``
    are the files that stand for the hosts' namespaces, by rank; none on loopback.
    """

    kind: str
    said: str
    hosts: tuple[Host, ...]
    store_port: int = STORE_PORT
    namespaces: tuple[str, ...] = ()
    taps: tuple[tuple[tuple[str, ...], str, str], ...] = ()


def _half(ranks: int) -> int:
    return max(k for k in range(1, ranks) if ranks % k == 0)
