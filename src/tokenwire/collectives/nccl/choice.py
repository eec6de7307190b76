"""What NCCL picks: of all algorithms and protocols that are allowed, the one that it expects to be the fastest.

Source: NVIDIA/nccl 2.30.7, src/enqueue.cc, topoGetAlgoInfo (the least time, the first of equals; channels by size);
src/graph/tuning.cc (protocols that are on by default).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire.collectives.busbw import algbw, busbw
from tokenwire.collectives.nccl.constants import ALGORITHMS, OPERATIONS, PROTOCOLS, tuner
from tokenwire.collectives.nccl.crossing import bound_seconds
from tokenwire.collectives.nccl.graph import graphs
from tokenwire.collectives.nccl.machine import NIC_PATHS, Machine
from tokenwire.collectives.nccl.overrides import DEFAULT, Overrides
from tokenwire.collectives.nccl.tuner import Estimate, communicator_channels, estimates, seconds
from tokenwire.errors import InputError, unknown


@dataclass(frozen=True)
class Choice:
    """One call as NCCL carries it out: its algorithm, protocol and channels.

    ``seconds`` are those that it expects, but never less than the busiest link needs for what crosses it (``bound_seconds``), and
    those of the ring for a tree that moves what the ring moves (``moved``).
    """

    op: str
    ranks: int
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    seconds: float
    bound_seconds: float = 0.0

    @property
    def algbw(self) -> float:
        """Return bytes/s of the tensor, as nccl-tests print it."""
        return algbw(self.size_bytes, self.seconds)

    @property
    def busbw(self) -> float:
        """Return bytes/s of the bus, as nccl-tests print it."""
        return busbw(self.op, self.ranks, self.size_bytes, self.seconds)


def times(machine: Machine, op: str, size_bytes: int, overrides: Overrides = DEFAULT) -> dict[tuple[str, str], float]:
    """Return the seconds that NCCL expects, by (algorithm, protocol), of those that are allowed.

    >>> t = times(Machine("hopper", nodes=4), "all_reduce", 64 << 20)
    >>> min(t, key=t.get)
    ('NVLSTree', 'Simple')
    """
    check(op, size_bytes)
    channels = communicator_channels(machine, overrides.least, overrides.most)
    out: dict[tuple[str, str], float] = {}
    for (a, p), estimate in estimates(machine, op).items():
        if not overrides.allows(op, a, p, on=p != "LL128" or _ll128(machine)):
            continue
        out[a, p] = seconds(machine, op, a, p, size_bytes, estimate, channels)
    return out


def choose(machine: Machine, op: str, size_bytes: int, overrides: Overrides = DEFAULT) -> Choice:
    """Return what NCCL picks. Raises ``InputError`` where the overrides leave nothing.

    >>> c = choose(Machine("hopper"), "all_reduce", 8 << 30)
    >>> c.algorithm, c.protocol, round(c.busbw / 1e9)
    ('NVLS', 'Simple', 476)
    """
    found = times(machine, op, size_bytes, overrides)
    if machine.ranks == 1:
        return Choice(op, 1, size_bytes, "none", "none", 0, 0.0)
    if not found:
        can = sorted({a for a, _ in estimates(machine, op)}, key=ALGORITHMS.index)
        raise InputError(f"{overrides.text} for {op}", rule="leaves no algorithm with a protocol on this machine",
                         nearest=f"NCCL_ALGO={can[0]}" if can else "other ranks")  # fmt: skip
    a, p = min(found, key=lambda pair: found[pair])
    # NCCL's estimate does not look at the limit of channels, but fewer channels than the graph has use fewer of the links.
    c, need = communicator_channels(machine, overrides.least, overrides.most), graphs(machine)[a].channels
    estimate = moved(machine, op, a, p)
    estimate = estimate._replace(bandwidth=estimate.bandwidth * min(1.0, overrides.most / need))
    expected = seconds(machine, op, a, p, size_bytes, estimate, c)
    bound = bound_seconds(machine, op, a, p, size_bytes)
    return Choice(op, machine.ranks, size_bytes, a, p, channels_of(machine, a, p, size_bytes, overrides),
                  max(expected, bound), bound)  # fmt: skip


def moved(machine: Machine, op: str, a: str, p: str) -> Estimate:
    """Return the estimate by which a call is timed: NCCL's, but of a tree between two nodes of one rank the ring's bandwidth.

    Between two ranks a tree sends what a ring sends: of each of its two trees, S/2 each, the leaf sends up and the root down, so S
    leaves either rank, in as many pieces. The tuner's factors for trees (0.92; 0.85 more where one GPU has both ends of a
    channel, as here) make NCCL prefer the ring; they are no slower link.

    >>> alone = Machine("hopper", nodes=2, ranks_per_node=1, nics_per_node=4)
    >>> estimates(alone, "all_reduce")["Tree", "Simple"].bandwidth, moved(alone, "all_reduce", "Tree", "Simple").bandwidth
    (35.19, 48.0)
    """
    found = estimates(machine, op)
    if a == "Tree" and machine.nodes == machine.ranks == 2 and ("Ring", p) in found:
        return found[a, p]._replace(bandwidth=found["Ring", p].bandwidth)
    return found[a, p]


def check(op: str, size_bytes: int) -> None:
    """Raise ``InputError`` for an operation without a choice, or a size that cannot be."""
    if op in ("all_to_all", "all_to_allv", "send", "recv", "barrier"):
        raise InputError(f"{op} by nccl", rule="is made of sends and receives: NCCL's tuner has no choice there",
                         nearest="--algorithm pairwise" if op.startswith("all_to_all") else f"one of {', '.join(OPERATIONS)}")  # fmt: skip
    if op not in OPERATIONS:
        raise unknown("collective", op[:80], OPERATIONS)
    if not 0 <= size_bytes <= 1 << 60:
        raise InputError(f"{op} of {size_bytes:,} B", rule="a tensor has 0 to 2^60 B")


def _ll128(machine: Machine) -> bool:
    """Return whether LL128 is on by default: NVLink inside, and ways to the NICs that keep 128 bytes together.

    From Hopper on these reach to PXN, before to PXB; never through the CPU.
    """
    inside = bool(machine.nvlink) and machine.generation.capability >= 70
    farthest = "PXN" if machine.generation.capability >= 90 else "PXB"
    near = NIC_PATHS.index(machine.nic_path) <= NIC_PATHS.index(farthest)
    return inside and (machine.nodes == 1 or near)


def channels_of(machine: Machine, a: str, protocol: str, size_bytes: int, overrides: Overrides = DEFAULT) -> int:
    """Return how many channels a call of this size uses: small ones take fewer."""
    T, p = tuner()["protocols"], PROTOCOLS.index(protocol)
    most = communicator_channels(machine, overrides.least, overrides.most)
    if a in ("NVLS", "NVLSTree"):
        own = int(tuner()["nvls_channels"][machine.gpu.lower()][min(machine.nodes, 3) - 1])
        return max(min(own, overrides.most), overrides.least, 1)
    if a == "CollNetDirect":
        return most
    each = T["threads"][p] * T["bytes_per_thread"][p] * (machine.ranks if (a, protocol) == ("Ring", "LL") else 1)
    return int(max(1, min(most, size_bytes // each)))
