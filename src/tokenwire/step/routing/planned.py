"""The routing of a plan: its experts, how its expert-parallel ranks lie on nodes, and the tokens of a rank."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Experts
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.step.routing.draw import Draw, draw
from tokenwire.step.routing.laws import Copies, Router, Spread, Volume, of_pair, of_rank
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Routed:
    """One dispatch (a layer of experts, a micro-batch): the law, its bounds, and one draw.

    ``tokens`` are those of a rank, ``row_bytes`` the bytes of a token's vector as it is sent.
    """

    spread: Spread
    tokens: int
    row_bytes: int
    rank: Volume
    pair: Volume
    drawn: Draw

    def sent(self, copies: Copies) -> dict[str, int]:
        """Return the bytes that a rank's tokens come to on each way: copies·n·row."""
        return {way: round(value * self.tokens * self.row_bytes) for way, value in asdict(copies).items()}

    def table(self) -> pl.DataFrame:
        """Return the draw by pair of ranks of the group: source, target, rows (one an expert), tokens (once), bytes."""
        import polars as pl

        R = self.spread.ranks
        source, target = np.divmod(np.arange(R * R), R)
        rows = self.drawn.rows.reshape(-1)
        return pl.DataFrame(
            {"source": source, "target": target, "rows": rows, "tokens": self.drawn.once.reshape(-1),
             "bytes": rows * self.row_bytes}
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON: copies a token, bytes a rank, rows with bounds, the draw with its imbalance."""
        spread, router = self.spread, self.spread.router
        law = {name: getattr(spread, name) for name in WAYS}
        return {
            "experts": router.experts, "active": router.active, "groups": router.groups, "group_topk": router.group_topk,
            "ranks": spread.ranks, "nodes": spread.nodes, "tokens_per_rank": self.tokens, "row_bytes": self.row_bytes,
            "copies_per_token": {name: asdict(copies) for name, copies in law.items()},
            "sent_bytes_per_rank": {name: self.sent(copies) for name, copies in law.items()},
            "share_of_tokens_whose_farthest_copy_is": asdict(spread.farthest),
            "nodes_reached_per_token": spread.nodes_reached,
            "network_share_of_nodes_reached": (spread.nodes - 1) / spread.nodes,
            "rows_received_by_rank": asdict(self.rank), "rows_of_pair": asdict(self.pair),
            "drawn": {
                "seed": self.drawn.seed, "skew": self.drawn.skew,
                "copies_per_token": {name: asdict(getattr(self.drawn, name)) for name in WAYS},
                "nodes_reached_per_token": self.drawn.nodes_reached,
                "rows_received_by_rank": self.drawn.received.tolist(), "imbalance": self.drawn.imbalance,
            },
        }  # fmt: skip


WAYS = ("a_row_an_expert", "a_row_a_rank", "a_row_a_node")
"""The ways of sending a token, the names of ``Spread``'s and ``Draw``'s copies."""


def of_plan(arch: Architecture, plan: Plan, gpus_per_node: int, *, seed: int = 0, skew: float = 0.0) -> Routed:
    """Return the routing of the first layer of experts over the expert-parallel group.

    Ranks fill nodes in order, ``gpus_per_node`` each. Raises ``InputError`` where there is nothing to route, where the
    groups lie unevenly on nodes, or for a draw that is too large.
    """
    experts = next((layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, Experts)), None)
    if experts is None:
        raise InputError("--routing", rule=f"the model {arch.name} has no experts", nearest="--set model.preset=mixtral-8x7b")
    if plan.ep == 1:
        raise InputError("--routing", rule="with ep = 1 every rank has all experts, and no token leaves it",
                         nearest="--set plan.ep=2")  # fmt: skip
    groups, limit = experts_groups(plan)
    spread = Spread(Router(experts.count, experts.active, groups, limit), plan.ep, nodes_of(plan, gpus_per_node))
    tokens = plan.training.micro_batch * plan.training.sequence_length // plan.cp
    tokens //= plan.tp if plan.sequence_parallel else 1
    width = experts.latent_size or arch.hidden_size
    row = int(width * ITEM_BYTES["fp32" if plan.training.precision == "fp32" else "bf16"])
    return Routed(
        spread, tokens, row, of_rank(spread, tokens), of_pair(spread, tokens), draw(spread, tokens, seed=seed, skew=skew)
    )


def experts_groups(plan: Plan) -> tuple[int, int]:
    """Return (groups of experts, groups that a token may use); (1, 1) where the router has no such limit."""
    config = plan.config
    if not isinstance(config, MegatronPlan) or config.moe_router_group_topk is None:
        return 1, 1
    return config.moe_router_num_groups or 1, config.moe_router_group_topk


def nodes_of(plan: Plan, gpus_per_node: int) -> int:
    """Return on how many nodes an expert-parallel group lies, as many ranks on each.

    Raises ``InputError`` where groups differ in that, or a node has more of the ranks than another.
    """
    members = np.sort(plan.groups("ep"), axis=1) // gpus_per_node
    nodes = len(np.unique(members[0]))
    runs = members.reshape(len(members), nodes, -1) if members.shape[1] % nodes == 0 else None
    if runs is None or np.any(runs[:, :, :1] != runs) or np.any(runs[:, 1:, 0] == runs[:, :-1, 0]):
        raise InputError(f"ep = {plan.ep}", where="[plan]", nearest="cluster.gpus_per_node=8",
                         rule=f"expert-parallel groups lie unevenly on nodes of {gpus_per_node} GPUs")  # fmt: skip
    return nodes
