"""Hierarchical all_reduce: inside the NVLink domain, then along the rails, then inside again.

n members stand in n/g domains of g = gcd(n, 8) consecutive ones. A ring reduce_scatter in every domain leaves member j
with piece j; the j-th members of all domains all_reduce that piece by a ring (a rail); a ring all_gather in every domain
hands the pieces out. Over the rails go 2(n/g-1)/(n/g)·S/g per member, (g-1)/g·S twice inside the domain.

Source: Jia et al. 2018, "Highly scalable deep learning training system with mixed-precision", section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tokenwire.collectives import ring
from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.tables import Ints, Table, joined, renamed, shifted, sizes, starts

DOMAIN = 8
"""GPUs of one NVLink domain in the machines of the source."""


def domains_of(n: int) -> tuple[int, int]:
    """Return the members of a domain and the number of domains.

    >>> domains_of(24), domains_of(6), domains_of(5)
    ((8, 3), (2, 3), (1, 5))
    """
    g = math.gcd(n, DOMAIN)
    return g, n // g


def domain_members(d: int, g: int) -> Ints:
    """Return the members of domain d, of g each."""
    return d * g + np.arange(g, dtype=np.int64)


def all_reduce_transfers(n: int, S: int) -> Table:
    """Return the three phases one after the other."""
    g, domains = domains_of(n)
    at, size, parts = starts(S, g), sizes(S, g), []
    if g > 1:
        inside, outside = ring.reduce_scatter_transfers(g, S), ring.all_gather_transfers(g, S)
        last = g - 1 + (2 * (domains - 1) if domains > 1 else 0)
        for d in range(domains):
            parts += [renamed(inside, domain_members(d, g)), renamed(shifted(outside, steps=last), domain_members(d, g))]
    if domains > 1:
        for j in range(g):
            rail = ring.all_reduce_transfers(domains, int(size[j]))
            members = j + g * np.arange(domains, dtype=np.int64)
            parts.append(renamed(shifted(rail, steps=g - 1, offset=int(at[j])), members))
    return joined(parts)


def all_reduce_edges(n: int, S: int) -> Edges:
    """Return the neighbours in the domain with both inner phases, and the neighbours on the rail."""
    g, domains = domains_of(n)
    i = np.arange(n, dtype=np.int64)
    d, j = i // g, i % g
    found: list[tuple[Ints, Ints, Ints]] = []
    if g > 1:
        found.append((i, d * g + (j + 1) % g, np.tile(ring.all_reduce_edges(g, S).bytes, domains)))
    if domains > 1:
        along = np.stack([ring.all_reduce_edges(domains, int(size)).bytes for size in sizes(S, g)])
        found.append((i, (i + g) % n, along[j, d]))
    return Edges(*(np.concatenate([part[k] for part in found]) for k in range(3)))


def _rounds(n: int, S: int) -> Iterator[Round]:
    g, domains = domains_of(n)
    i = np.arange(n, dtype=np.int64)
    inside = i // g * g + (i % g + 1) % g
    if g > 1:
        yield Round(g - 1, S / g, src=i, dst=inside)
    if domains > 1:
        yield Round(2 * (domains - 1), S / g / domains, src=i, dst=(i + g) % n)
    if g > 1:
        yield Round(g - 1, S / g, src=i, dst=inside)


register(
    Algorithm(
        "all_reduce", "hierarchical", all_reduce_transfers, all_reduce_edges, _rounds, lambda n: 2 * n * (n + DOMAIN),
        "Jia et al. 2018, section 4.2",
    )
)  # fmt: skip
