"""How far routing to experts is from even, as a share of the mean: what must be expected, and the most that can be.

``step.routing`` has the laws: with a router that prefers no expert, rows of the fullest rank lie below a bound with a probability of
999 in 1,000; a trained router is less even, and at the start of training much less.
"""

from __future__ import annotations

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Experts
from tokenwire.plan import Plan
from tokenwire.step.routing.laws import Router, Spread, Volume, of_rank
from tokenwire.step.routing.planned import experts_groups


def skews(arch: Architecture, plan: Plan) -> tuple[float, float]:
    """Return by what share of the mean the fullest rank of a micro-batch has more rows: the likely most, and the most of any router.

    Both are 0 where every rank has all experts, where the model has none, and where a capacity limits the rows.

    >>> from tokenwire.model import preset
    >>> from tokenwire.plan import TrainingConfig, read_plan, resolve
    >>> arch = preset("mixtral-8x7b")
    >>> plan = resolve(read_plan({"ep": 8}), TrainingConfig(sequence_length=4096, micro_batch=1), arch, 8)
    >>> [round(share, 3) for share in skews(arch, plan)]
    [0.042, 3.0]
    """
    experts = {layer.feed_forward for layer in arch.kinds if isinstance(layer.feed_forward, Experts)}
    if plan.ep == 1 or getattr(plan.config, "moe_expert_capacity_factor", None):
        return 0.0, 0.0
    rows = [volume for x in experts if (volume := _rows(plan, x)) is not None and volume.mean]
    likely = max((volume.likely_most / volume.mean - 1 for volume in rows), default=0.0)
    return likely, max((volume.most / volume.mean - 1 for volume in rows), default=0.0)


def _rows(plan: Plan, x: Experts) -> Volume | None:
    tokens = plan.training.micro_batch * plan.training.sequence_length // plan.cp
    tokens //= plan.tp if plan.sequence_parallel else 1
    try:
        return of_rank(Spread(Router(x.count, x.active, *experts_groups(plan)), plan.ep), tokens)
    except InputError:
        return None  # groups of experts that lie across ranks have no law here
