"""One seeded draw of the routing of a micro-batch in a layer: who sends how many rows to whom, and how uneven it is.

A token's score of an expert is the sigmoid of a standard normal logit, plus what all tokens share (``skew``: the standard
deviation of the experts' popularity, in deviations of a token's own logit). Groups are chosen by the sum of their k//M
best scores, experts by score within them: megatron-core 0.16.1, transformer/moe/moe_utils.py, group_limited_topk; with
G = M by score alone. Ties do not happen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.step.routing.laws import Copies, Router, Spread

MOST_SCORES = 1 << 30
"""Scores (R·n·E) of the largest draw: about a minute."""
_BATCH = 1 << 22

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Draw:
    """What one draw of the routing sends in a dispatch; combine sends the same back.

    ``rows[i, j]``: rows of rank i for experts of rank j, one an expert. ``once[i, j]``: tokens of rank i with at least one
    expert on rank j. ``nodes[i, m]``: tokens of rank i with at least one expert on node m. ``loads[x]``: rows of expert x.
    """

    spread: Spread
    tokens: int
    seed: int
    skew: float
    rows: Counts
    once: Counts
    nodes: Counts
    loads: Counts

    def _copies(self, matrix: Counts) -> Copies:
        # Rank to rank: own GPU, own node, elsewhere.
        tokens, g = self.tokens * self.spread.ranks, self.spread.ranks_of_node
        place = np.arange(self.spread.ranks) // g
        same = place[:, None] == place[None, :]
        own, inside = int(np.trace(matrix)), int(matrix[same].sum())
        return Copies(own / tokens, (inside - own) / tokens, (int(matrix.sum()) - inside) / tokens)

    @property
    def a_row_an_expert(self) -> Copies:
        """Return the copies of a token, one an expert."""
        return self._copies(self.rows)

    @property
    def a_row_a_rank(self) -> Copies:
        """Return the copies of a token, one a rank."""
        return self._copies(self.once)

    @property
    def a_row_a_node(self) -> Copies:
        """Return the copies of a token, one a node over the network and on from the GPU of the sender's own number."""
        R, g, tokens = self.spread.ranks, self.spread.ranks_of_node, self.tokens * self.spread.ranks
        rank = np.arange(R)
        lands = (rank[:, None] % g) == (rank[None, :] % g)
        abroad = (rank[:, None] // g) != np.arange(self.spread.nodes)[None, :]
        return Copies(
            int(np.trace(self.once)) / tokens, int(self.once[~lands].sum()) / tokens, int(self.nodes[abroad].sum()) / tokens
        )

    @property
    def nodes_reached(self) -> float:
        """Return the mean of the nodes that have an expert of a token, the own one counted."""
        return int(self.nodes.sum()) / (self.tokens * self.spread.ranks)

    @property
    def received(self) -> Counts:
        """Return the rows that each rank gets."""
        total: Counts = self.rows.sum(axis=0)
        return total

    @property
    def imbalance(self) -> dict[str, float]:
        """Return max over mean, by rank that receives, by pair of ranks, by expert, and by node."""
        per_node = self.received.reshape(self.spread.nodes, -1).sum(axis=1)
        parts = {"rank": self.received, "pair": self.rows, "expert": self.loads, "node": per_node}
        return {name: float(part.max() / part.mean()) for name, part in parts.items()}


def draw(spread: Spread, tokens: int, *, seed: int = 0, skew: float = 0.0) -> Draw:
    """Return the draw of ``seed`` for R ranks of ``tokens`` tokens each: the same seed, the same draw.

    Raises ``InputError`` for no tokens, a negative seed or skew, or more than ``MOST_SCORES`` scores.

    >>> drawn = draw(Spread(Router(8, 2), 4), 100, seed=1)
    >>> drawn.rows.sum(axis=1).tolist()
    [200, 200, 200, 200]
    """
    router, R = spread.router, spread.ranks
    E = router.experts
    if seed < 0:
        raise InputError(f"routing seed {seed}", rule="must be 0 or more", nearest="0")
    if not 0 <= skew <= 100:
        raise InputError(f"skew {skew:g}", rule="must be from 0 (experts equally liked) to 100", nearest="0")
    most = MOST_SCORES // (R * E)
    if not 1 <= tokens <= most:
        raise InputError(f"{tokens:,} tokens a rank", rule=f"a draw for {R:,} ranks and {E:,} experts has from 1 to {most:,}",
                         nearest=f"{min(max(tokens, 1), most):,} tokens")  # fmt: skip
    random = np.random.default_rng(seed)
    liked = (skew * random.standard_normal(E)).astype(np.float32)
    rows, once = np.zeros((R, R), dtype=np.int64), np.zeros((R, R), dtype=np.int64)
    nodes, loads = np.zeros((R, spread.nodes), dtype=np.int64), np.zeros(E, dtype=np.int64)
    for rank in range(R):
        for start in range(0, tokens, max(1, _BATCH // E)):
            chosen = _chosen(router, liked, min(max(1, _BATCH // E), tokens - start), random)
            loads += np.bincount(chosen.reshape(-1), minlength=E)
            rows[rank] += np.bincount((chosen // spread.local).reshape(-1), minlength=R)
            once[rank] += _distinct(chosen // spread.local, R)
            nodes[rank] += _distinct(chosen // spread.node, spread.nodes)
    return Draw(spread, tokens, seed, skew, rows, once, nodes, loads)


def _chosen(
    router: Router, liked: npt.NDArray[np.float32], tokens: int, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    # Indices of the chosen experts, int64[tokens, k].
    k, E = router.active, router.experts
    logits = random.standard_normal((tokens, E), dtype=np.float32) + liked
    if router.group_topk < router.groups:
        best = max(1, k // router.group_topk)
        score = (1 / (1 + np.exp(-logits))).reshape(tokens, router.groups, router.group_size)
        best = min(best, router.group_size)
        of_group = np.partition(score, router.group_size - best, axis=2)[:, :, router.group_size - best :].sum(axis=2)
        groups = _top(of_group, router.group_topk)
        closed = np.ones((tokens, router.groups), dtype=bool)
        np.put_along_axis(closed, groups, False, axis=1)
        logits[np.repeat(closed, router.group_size, axis=1)] = -np.inf
    return _top(logits, k)


def _top(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    if k == scores.shape[1]:
        return np.tile(np.arange(k, dtype=np.int64), (len(scores), 1))
    return np.argpartition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k :].astype(np.int64)


def _distinct(places: npt.NDArray[np.int64], size: int) -> Counts:
    # How many tokens have each place at least once; places int64[tokens, k].
    hit = np.zeros((len(places), size), dtype=bool)
    np.put_along_axis(hit, places, True, axis=1)
    out: Counts = hit.sum(axis=0, dtype=np.int64)
    return out
