"""Which of several ways a flow takes: the seven ways to route.

- ``ecmp``: each queue pair of a connection takes the way that the switches' hash of its 5-tuple says (``fivetuple``);
- ``spray``: each packet takes another way, so that every equal way carries an equal part of every flow;
- ``adaptive``: each flow (each of ``queue_pairs``), the largest first, takes the way whose busiest link will be least busy;
- ``static``: the uplink belongs to the sender's port at its leaf (one uplink a NIC of a rail);
- ``valiant``, ``ugal``: detours over a third group, always, or only where the shortest route is busier (``detour``);
- ``dmod``: the way down belongs to the receiver, and so the way up too: no two receivers meet on a link down.

Source: Gangidi et al. 2024, "RDMA over Ethernet for distributed AI training at Meta scale" (SIGCOMM), section 4 (ECMP, queue
pair scaling, paths pinned by the destination's slice); Zahavi 2010, "D-Mod-K routing providing non-blocking traffic for
shift permutations on real life fat trees"; Dixit et al. 2013, "On the impact of packet spraying in data center networks".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tokenwire.fabric import fivetuple
from tokenwire.fabric.fivetuple import Bits, Ints, mixed

SHORTEST = ("ecmp", "spray", "adaptive", "static", "dmod")
DETOURS = ("valiant", "ugal")
ROUTINGS = (*SHORTEST, *DETOURS)
WITHOUT_DETOURS = ("clos", "file")
"""Topologies whose switches stand in no groups to go round by."""


@dataclass(frozen=True)
class Choice:
    """How one way is picked: ``routing``, the switches' ``hash``, the ``seed`` of what nobody knows beforehand.

    ``queue_pair`` is which queue pair of its connection each flow is: one for all, or a column.
    """

    routing: str = "ecmp"
    hash: str = "crc32"
    seed: int = 0
    queue_pair: Ints | int = 0

    def of(self, part: slice | Ints) -> Choice:
        """Return the choice for a part of the flows."""
        return self if isinstance(self.queue_pair, int) else replace(self, queue_pair=self.queue_pair[part])

    @property
    def by_hash(self) -> bool:
        """Return whether a hash decides; else numbers of the ends do."""
        return self.routing not in ("static", "dmod")

    def ports(self, src: Ints, dst: Ints, salt: int = 1) -> Bits:
        """Return numbers to pick ports and NICs of the ends by (not a switch's choice), 64 bits each."""
        return mixed(src, dst + (np.int64(1) << 40) * np.asarray(self.queue_pair, dtype=np.int64), self.seed, salt)

    def flow(self, src: Ints, dst: Ints, per_node: int) -> Bits:
        """Return the hash of each flow between NICs numbered through the nodes, ``per_node`` in each."""
        source_qp, qp = fivetuple.queue_pairs(src, dst, self.queue_pair, self.seed)
        source, destination = (fivetuple.address(end // per_node, end % per_node) for end in (src, dst))
        return fivetuple.hashed(source, destination, fivetuple.udp_source_port(source_qp, qp), self.hash)

    def pick(self, bits: Bits, tier: int, ways: int) -> Ints:
        """Return which of ``ways`` equal ways the switch of that tier sends each flow."""
        return (fivetuple.turned(bits, tier, self.hash) % np.uint64(ways)).astype(np.int64)
