"""Where the rows of dropless routing go, in closed form: means, variances and bounds.

Symbols: E experts, k of them a token, G groups of experts of which a token may use M (group-limited routing: DeepSeek-V3,
arXiv 2412.19437, section 2.1.2; G = M = 1 is no limit), R ranks that share the experts, N nodes that these ranks are on,
n tokens a rank.

Model: every token draws M groups, then k different experts of these, each choice as likely as every other, and tokens are
independent. So the experts that a token draws out of a set are hypergeometric, given how many of the set's groups it drew.
A trained router is less even: ``draw`` has a skew for that; ``Ends`` holds for any router.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tokenwire.errors import InputError


@dataclass(frozen=True)
class Router:
    """``active`` of ``experts`` a token, out of at most ``group_topk`` of ``groups`` equal runs of experts.

    Raises ``InputError`` where Megatron's router would refuse it.

    >>> round(Router(256, 8, 8, 4).reached(32), 4)
    0.4536
    """

    experts: int
    active: int
    groups: int = 1
    group_topk: int = 1

    def __post_init__(self) -> None:
        """Check the sizes."""
        E, k, G, M = self.experts, self.active, self.groups, self.group_topk
        if not 1 <= k <= E:
            raise InputError(f"{k:,} experts a token", rule=f"must be from 1 to the {E:,} experts", nearest=str(min(max(k, 1), E)))
        if G < 1 or E % G:
            nearest = min(_divisors(E), key=lambda g: abs(g - G))
            raise InputError(f"{G:,} groups of experts", rule=f"must divide the {E:,} experts", nearest=str(nearest))
        if not 1 <= M <= G:
            raise InputError(f"{M:,} groups a token", rule=f"must be from 1 to the {G:,} groups", nearest=str(min(max(M, 1), G)))
        if k > self.open:
            raise InputError(f"{k:,} experts a token", rule=f"{M:,} of {G:,} groups have only {self.open:,} experts",
                             nearest=str(self.open))  # fmt: skip

    @property
    def group_size(self) -> int:
        """Return the experts of a group, E/G."""
        return self.experts // self.groups

    @property
    def open(self) -> int:
        """Return the experts that a token may choose from once its groups are drawn, M·E/G."""
        return self.group_topk * self.group_size

    def _cases(self, size: int) -> Iterator[tuple[float, int]]:
        # (probability, experts of the set that are open to the token), for an aligned run of `size` experts.
        G, M, width = self.groups, self.group_topk, self.group_size
        if size % width and width % size:
            raise InputError(f"a share of {size:,} experts", rule=f"must divide a group of {width:,} experts, or be whole groups",
                             nearest=str(min(_divisors(self.experts), key=lambda s: abs(s - size))))  # fmt: skip
        if size < width:
            yield M / G, size
            yield 1 - M / G, 0
            return
        q = size // width
        for j in range(max(0, M - (G - q)), min(M, q) + 1):
            yield math.comb(q, j) * math.comb(G - q, M - j) / math.comb(G, M), j * width

    def mean(self, size: int) -> float:
        """Return the mean of a token's experts in a set of ``size``: k·size/E."""
        return self.active * size / self.experts

    def variance(self, size: int) -> float:
        """Return the variance of a token's experts in a run of ``size`` experts (law of total variance over the groups)."""
        A, k = self.open, self.active
        second = 0.0
        for probability, a in self._cases(size):
            share = a / A
            within = k * share * (1 - share) * (A - k) / (A - 1) if A > 1 else 0.0
            second += probability * (within + (k * share) ** 2)
        return max(second - self.mean(size) ** 2, 0.0)

    def reached(self, size: int) -> float:
        """Return the probability that a token has at least one of its experts in a run of ``size``: 1 - C(A-a,k)/C(A,k)."""
        A, k = self.open, self.active
        return sum(p * (1 - math.comb(A - a, k) / math.comb(A, k)) for p, a in self._cases(size))

    def confined(self, size: int) -> float:
        """Return the probability that a token has all its experts in a run of ``size``: C(a,k)/C(A,k)."""
        return sum(p * math.comb(a, self.active) / math.comb(self.open, self.active) for p, a in self._cases(size))

    def ends(self, size: int) -> tuple[int, int]:
        """Return the least and the most experts that a token can have in a run of ``size``, whatever the router."""
        k, A = self.active, self.open
        chosen = [a for probability, a in self._cases(size) if probability > 0]
        return max(0, k - (A - min(chosen))), min(k, max(chosen))


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@dataclass(frozen=True)
class Copies:
    """How many times a token is sent, on average: to the own GPU (no wire), to others over NVLink, over the network."""

    own: float
    nvlink: float
    network: float

    @property
    def total(self) -> float:
        """Return all copies."""
        return self.own + self.nvlink + self.network


@dataclass(frozen=True)
class Spread:
    """The router's experts over R ranks on N nodes, in order, as many on each.

    Raises ``InputError`` where they cannot be shared out evenly.

    >>> Spread(Router(256, 8), 16, 2).a_row_an_expert
    Copies(own=0.5, nvlink=3.5, network=4.0)
    """

    router: Router
    ranks: int
    nodes: int = 1

    def __post_init__(self) -> None:
        """Check the sizes."""
        E, R, N = self.router.experts, self.ranks, self.nodes
        if R < 1 or E % R:
            raise InputError(f"{R:,} ranks for {E:,} experts", rule="the ranks must divide the experts",
                             nearest=str(min(_divisors(E), key=lambda r: abs(r - R))))  # fmt: skip
        if N < 1 or R % N:
            raise InputError(f"{R:,} ranks on {N:,} nodes", rule="every node must have as many of the ranks",
                             nearest=str(min(_divisors(R), key=lambda n: abs(n - N))))  # fmt: skip

    @property
    def ranks_of_node(self) -> int:
        """Return R/N."""
        return self.ranks // self.nodes

    @property
    def local(self) -> int:
        """Return the experts of a rank, E/R."""
        return self.router.experts // self.ranks

    @property
    def node(self) -> int:
        """Return the experts of a node, E/N."""
        return self.router.experts // self.nodes

    @property
    def a_row_an_expert(self) -> Copies:
        """Return the copies where each chosen expert gets a row of its own: k/R, k(1/N - 1/R), k(1 - 1/N) (all_to_all)."""
        k, R, N = self.router.active, self.ranks, self.nodes
        return Copies(k / R, k * (R - N) / (R * N), k * (N - 1) / N)

    @property
    def a_row_a_rank(self) -> Copies:
        """Return the copies where a rank gets a token once: P, (R/N - 1)P, (R - R/N)P; P = 1 - C(A-a,k)/C(A,k) of a rank."""
        P, g = self.router.reached(self.local), self.ranks_of_node
        return Copies(P, (g - 1) * P, (self.ranks - g) * P)

    @property
    def a_row_a_node(self) -> Copies:
        """Return the copies where a token crosses the network once a node, NVLink does the rest: P, N(R/N - 1)P, (N - 1)Q.

        It lands on the GPU of the sender's own number (DeepEP, csrc/kernels/internode.cu), which may be its goal; Q is the
        probability that a node has one of the token's experts.
        """
        P, Q, g = self.router.reached(self.local), self.router.reached(self.node), self.ranks_of_node
        return Copies(P, self.nodes * (g - 1) * P, (self.nodes - 1) * Q)

    @property
    def nodes_reached(self) -> float:
        """Return the mean of the nodes that have an expert of a token, the own one counted: N·Q."""
        return self.nodes * self.router.reached(self.node)

    @property
    def farthest(self) -> Copies:
        """Return the shares of tokens whose farthest copy stays on the GPU, on NVLink, or goes over the network."""
        own, inside = self.router.confined(self.local), self.router.confined(self.node)
        return Copies(own, inside - own, 1 - inside)


@dataclass(frozen=True)
class Volume:
    """Rows of a micro-batch and layer: the mean, the standard deviation, and what they lie between.

    ``least`` and ``most`` hold for any router; ``likely_least`` and ``likely_most`` for all ``alike`` volumes at once with
    the probability that was asked for.
    """

    mean: float
    deviation: float
    likely_least: float
    likely_most: float
    least: int
    most: int


def volume(router: Router, size: int, tokens: int, *, alike: int = 1, doubt: float = 1e-3) -> Volume:
    """Return how many rows ``tokens`` tokens have in a run of ``size`` experts.

    With V the variance and c the largest distance of one token from its mean, |X - mean| passes x with a probability of at
    most 2·exp(-x²/(2(V + c·x/3))) (Bernstein's inequality), here set to ``doubt/alike``: rigorous, not a normal
    approximation.

    >>> volume(Router(8, 2), 2, 1000).mean
    500.0
    """
    mean, V = tokens * router.mean(size), tokens * router.variance(size)
    low, high = router.ends(size)
    c = max(high - router.mean(size), router.mean(size) - low)
    L = math.log(2 * alike / doubt)
    x = c * L / 3 + math.sqrt((c * L / 3) ** 2 + 2 * V * L) if V > 0 else 0.0
    least, most = tokens * low, tokens * high
    return Volume(mean, math.sqrt(V), max(mean - x, least), min(mean + x, most), least, most)


def of_rank(spread: Spread, tokens: int, *, doubt: float = 1e-3) -> Volume:
    """Return the rows that a rank gets from all R ranks of n = ``tokens`` tokens each (bounds: of every rank at once)."""
    return volume(spread.router, spread.local, tokens * spread.ranks, alike=spread.ranks, doubt=doubt)


def of_pair(spread: Spread, tokens: int, *, doubt: float = 1e-3) -> Volume:
    """Return the rows from one rank to another (bounds: of every pair at once)."""
    return volume(spread.router, spread.local, tokens, alike=spread.ranks**2, doubt=doubt)
