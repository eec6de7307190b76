"""NVLS tree: the NVLink switches add and copy inside their domains, double binary trees join the domains.

n members stand in N = n/g domains of g = gcd(n, 8) consecutive ones, each under a switch, which is member n + d of transfers and
edges. The j-th member of a domain is the head of piece j: it takes the domain's sum of it from the switch, all_reduces it with
the j-th members of the other domains by the double binary tree, and writes the result to the switch, which copies it to all.
A member sends S + S/g to its switch, and on average 2(N-1)/N · S/g to other domains. One domain is NVLS, domains of one a tree.

Source: NVIDIA/nccl 2.30.7, src/device/all_reduce.h, RunWorkColl for NCCL_ALGO_NVLS_TREE; src/transport/nvls.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives import nvls, tree
from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.hierarchical import domain_members, domains_of
from tokenwire.collectives.tables import Ints, Table, joined, renamed, shifted, sizes, starts


def all_reduce_transfers(n: int, S: int) -> Table:
    """Return the pull of every domain, the trees of the heads, the push of every domain."""
    g, domains = domains_of(n)
    at, size, parts = starts(S, g), sizes(S, g), []
    heads = [tree.all_reduce_transfers(domains, int(own)) for own in size] if domains > 1 else []
    between = max((int(part["step"].max(initial=-1)) + 1 for part in heads), default=0)
    lead = 2 if g > 1 else 0
    if g > 1:
        pull, push = nvls.pull(g, S), nvls.push(g, S, lead + between)
        for d in range(domains):
            members = np.append(domain_members(d, g), n + d)
            parts += [renamed(pull, members), renamed(push, members)]
    for j, part in enumerate(heads):
        part["chunk"] = j  # both halves of a head's piece wait for the same sum
        parts.append(renamed(shifted(part, steps=lead, offset=int(at[j])), j + g * np.arange(domains, dtype=np.int64)))
    return joined(parts)


def all_reduce_edges(n: int, S: int) -> Edges:
    """Return the links to the switches, and the edges of the heads' trees."""
    g, domains = domains_of(n)
    found: list[tuple[Ints, Ints, Ints]] = []
    if g > 1:
        inside, d = nvls.all_reduce_edges(g, S), np.arange(domains, dtype=np.int64)[:, None]
        src, dst = (np.where(end < g, d * g + end, n + d).reshape(-1) for end in (inside.src, inside.dst))
        found.append((src, dst, np.tile(inside.bytes, domains)))
    if domains > 1:
        for j, own in enumerate(sizes(S, g)):
            e = tree.all_reduce_edges(domains, int(own))
            found.append((j + g * e.src, j + g * e.dst, e.bytes))
    return Edges(*(np.concatenate([part[k] for part in found]) for k in range(3)))


def _rounds(n: int, S: int) -> Iterator[Round]:
    g, domains = domains_of(n)
    if domains > 1:
        # All heads of a domain climb at once, each over links of its own.
        for part in tree.rounds(domains, S):
            ends = [(g * end[:, None] + np.arange(g)).reshape(-1) for end in (part.src, part.dst) if end is not None]
            yield part._replace(bytes=part.bytes / g, src=ends[0], dst=ends[1])
    if g > 1:
        yield Round(1, 0.0, switch_bytes=S * (g + 1) / g)


register(
    Algorithm(
        "all_reduce", "nvls_tree", all_reduce_transfers, all_reduce_edges, _rounds, lambda n: 2 * n * 9 + 4 * n,
        "NVIDIA/nccl, src/device/all_reduce.h", in_network=True,
    )
)  # fmt: skip
