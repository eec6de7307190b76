"""Collectives: how it is said. An operation and an algorithm become transfers between the members of a group.

In: the name of an operation (``all_reduce`` ...), of an algorithm (``ring`` ...), the size n of the group, the bytes of the
full tensor (what all_gather puts out, what reduce_scatter takes in, what every rank of all_to_all gives away). Out:
``transfers`` step by step, ``edges`` (the same summed by pair, in closed form), ``sent_bytes`` of each member, ``cost``
in seconds with its derivation, ``busbw`` as nccl-tests define it. Members are counted 0 to n-1 inside the group; the root
of a broadcast or reduce is member 0. A new algorithm is one module that calls ``register``.
"""

from tokenwire.collectives.algorithm import (
    OPERATIONS,
    Algorithm,
    Edges,
    algorithm,
    algorithms,
    default_algorithm,
    edges,
    register,
    sent_bytes,
    transfers,
)
from tokenwire.collectives.busbw import algbw, busbw, busbw_factor
from tokenwire.collectives.cost import Cost, cost
from tokenwire.collectives.running import run
from tokenwire.collectives.tables import TRANSFER

__all__ = [
    "OPERATIONS", "TRANSFER", "Algorithm", "Cost", "Edges", "algbw", "algorithm", "algorithms", "busbw", "busbw_factor",
    "cost", "default_algorithm", "edges", "register", "run", "sent_bytes", "transfers",
]  # fmt: skip
