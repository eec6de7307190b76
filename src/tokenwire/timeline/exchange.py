"""Exchanges of experts' tokens that go once to a node: DeepEP and HybridEP send a token's vector over the network to one GPU of each
node that has some of its experts, which hands it on by NVLink (deepseek-ai/DeepEP, README, normal kernels with forwarding).

The step table counts vectors by rank: a rank that has one of a token's experts gets it once. What crosses nodes is fewer by

    once = (N-1)·P(node) / ((n-r)·P(rank)),     N nodes, n ranks, r on a node, P the chance that a node or rank is reached
"""

from __future__ import annotations

from tokenwire.model.architecture import Architecture, Experts
from tokenwire.plan import Plan
from tokenwire.step.routing.laws import Router
from tokenwire.step.routing.planned import experts_groups
from tokenwire.timeline.communication import Place


def once(arch: Architecture, plan: Plan, place: Place) -> float:
    """Return the share of what crosses nodes in the step table that such a dispatcher sends; 1 for others.

    >>> from tokenwire.model import preset
    >>> from tokenwire.plan import TrainingConfig, read_plan, resolve
    >>> v3 = preset("deepseek-v3")
    >>> config = read_plan({"ep": 32, "moe_token_dispatcher_type": "flex"})
    >>> plan = resolve(config, TrainingConfig(global_batch=32, micro_batch=1), v3, 32)
    >>> round(once(v3, plan, Place(32, 4, 8)), 2)     # 3·0.90 / (24·0.22)
    0.5
    """
    if getattr(plan.config, "moe_token_dispatcher_type", "") != "flex" or place.nodes < 2 or place.ranks % place.nodes:
        return 1.0
    experts = next((layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, Experts)), None)
    own = experts.count // plan.ep if experts else 0
    if experts is None or not own:
        return 1.0
    router = Router(experts.count, experts.active, *experts_groups(plan))
    node = router.reached(min(own * place.per_node // plan.etp, experts.count))
    return (place.nodes - 1) * node / ((place.ranks - place.per_node) * router.reached(own))
