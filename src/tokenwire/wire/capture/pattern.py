"""Which collective may stand behind who sent how much to whom: a guess, and said as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SMALL = 0.02
"""Pairs that carry less than this share of the largest pair's bytes count as control traffic."""
EVEN = 0.15
"""Volumes count as equal when they differ from their mean by at most this share."""


@dataclass(frozen=True)
class Guess:
    """A pattern by name (``ring``, ``tree``, ``all_to_all``, ``pair``, ``star`` or ``unknown``), its hosts, and why."""

    pattern: str
    hosts: int
    because: str

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {**asdict(self), "certain": False}


def guess(pairs: Mapping[tuple[str, str], int]) -> Guess:
    """Return the pattern that payload bytes by (sender, receiver) look like.

    >>> guess({("a", "b"): 100, ("b", "c"): 100, ("c", "a"): 100, ("a", "c"): 1}).pattern
    'ring'
    >>> guess({(a, b): 50 for a in "abcd" for b in "abcd" if a != b}).pattern
    'all_to_all'
    """
    heaviest = max(pairs.values(), default=0)
    large = {pair: size for pair, size in pairs.items() if size > heaviest * SMALL and pair[0] != pair[1]}
    hosts = {end for pair in large for end in pair}
    n = len(hosts)
    if not large:
        return Guess("unknown", 0, "no payload between hosts")
    if n == 2:
        both = "both ways" if len(large) == 2 else "one way"
        return Guess("pair", 2, f"two hosts, {both}: sending and receiving, or any collective of two")
    mean = sum(large.values()) / len(large)
    even = all(abs(size - mean) <= EVEN * mean for size in large.values())
    following = _following(large)
    if even and len(large) == n == len(following) and _one_cycle(following):
        return Guess(
            "ring", n, f"each of {n} hosts sends the same volume to one next host, and they form one cycle"
        )
    if even and len(large) == n * (n - 1):
        return Guess("all_to_all", n, f"all {n * (n - 1)} pairs of {n} hosts carry the same volume")
    if even and len(large) == 2 * n and _undirected_cycle(large, n):
        return Guess(
            "ring",
            n,
            f"each of {n} hosts exchanges the same volume with two neighbours on one cycle: rings both ways",
        )
    edges = {frozenset(pair) for pair in large}
    if len(edges) == n - 1 and _connected(edges, hosts):
        degrees = {host: sum(host in edge for edge in edges) for host in hosts}
        if max(degrees.values()) == n - 1:
            centre = max(degrees, key=lambda host: degrees[host])
            return Guess(
                "star",
                n,
                f"all others of {n} hosts exchange only with {centre}: broadcast, gather or scatter",
            )
        return Guess("tree", n, f"{n - 1} links join {n} hosts without a cycle")
    return Guess("unknown", n, f"{len(large)} pairs of {n} hosts fit neither ring, tree nor all_to_all")


def _following(large: Mapping[tuple[str, str], int]) -> dict[str, str]:
    return dict(large.keys())


def _one_cycle(following: Mapping[str, str]) -> bool:
    at = start = next(iter(following))
    for steps in range(1, len(following) + 1):
        at = following.get(at, "")
        if at == start:
            return steps == len(following)
    return False


def _undirected_cycle(large: Mapping[tuple[str, str], int], n: int) -> bool:
    edges = {frozenset(pair) for pair in large}
    hosts = {host for edge in edges for host in edge}
    two = all(sum(host in edge for edge in edges) == 2 for host in hosts)
    return len(edges) == n and two and _connected(edges, hosts)


def _connected(edges: set[frozenset[str]], hosts: set[str]) -> bool:
    near: dict[str, set[str]] = {host: set() for host in hosts}
    for edge in edges:
        a, b = tuple(edge)
        near[a].add(b)
        near[b].add(a)
    seen, todo = set(), [next(iter(hosts))]
    while todo:
        host = todo.pop()
        if host not in seen:
            seen.add(host)
            todo.extend(near[host] - seen)
    return seen == hosts
