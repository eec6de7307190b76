"""The host in a step: seconds of copies over its link, and of the optimizer that runs there.

Copies that the framework overlaps take what is longer, they or the computing of their phase; the two directions run at once. The
optimizer waits for all GPUs of a node, whose parameters the processors of that node update together.

CPU Adam: Ren et al. 2021, ZeRO-Offload, table 4 (10 billion parameters on two Xeon 8168: DeepSpeed's 2.57 s, torch's 14.76 s).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.fabric.gpus import named_facts
from tokenwire.plan import Plan
from tokenwire.step.transfer import Transfer
from tokenwire.units import parse_rate

ADAM_RATE = {"deepspeed": 10e9 / 2.57, "torch": 10e9 / 14.76}
"""Parameters that the processors of a node update in a second."""


@dataclass(frozen=True)
class HostSeconds:
    """Seconds that the host adds to a rank of a stage: ``exposed`` copies, and ``optimizer``, with the copies around it."""

    exposed: float = 0.0
    optimizer: float = 0.0


def host_rate(facts: ClusterFacts) -> float:
    """Return the bytes/s between a GPU and its host in one direction. Raises ``InputError`` where it is not known.

    >>> from tokenwire.fabric import preset
    >>> host_rate(preset("dgx-h100-superpod"))
    63000000000.0
    """
    if facts.host_rate is not None:
        return facts.host_rate
    known = named_facts(facts.gpu).get("host_rate")
    if known is None:
        raise InputError("host_rate", where="[cluster]", rule=f"is not known of {facts.gpu}", nearest='host_rate = "63 GB/s"')
    return float(parse_rate(known))


def host_seconds(
    transfers: Iterable[Transfer], plan: Plan, facts: ClusterFacts, computing: dict[str, float], parameters: float
) -> HostSeconds:
    """Return the seconds of a stage's rank: ``transfers`` are its own, ``computing`` its seconds by phase in a step.

    ``parameters`` is how many of them the host updates for this rank.
    """
    transfers = list(transfers)
    if not transfers:
        return HostSeconds()
    found = {phase: _seconds(transfers, phase, facts, computing.get(phase, 0.0)) for phase in ("forward", "backward", "optimizer")}
    rate = facts.cpu_adam_rate or ADAM_RATE[plan.config.offload().adam]
    return HostSeconds(found["forward"] + found["backward"], found["optimizer"] + parameters * min(facts.gpus_per_node, plan.world) / rate)


def _seconds(transfers: list[Transfer], phase: str, facts: ClusterFacts, computing: float) -> float:
    def longest(overlapped: bool) -> float:
        size = {
            way: sum(x.bytes for x in transfers if x.phase == phase and x.overlapped == overlapped and x.direction == way)
            for way in ("to_host", "to_gpu", "to_nvme", "from_nvme")
        }
        link = max(size["to_host"], size["to_gpu"]) / host_rate(facts)
        return max(link, max(size["to_nvme"], size["from_nvme"]) * facts.gpus_per_node / _nvme(facts, size))

    return max(longest(True) - computing, 0.0) + longest(False)


def _nvme(facts: ClusterFacts, size: dict[str, float]) -> float:
    if facts.nvme_rate is None and (size["to_nvme"] or size["from_nvme"]):
        raise InputError("nvme_rate", where="[cluster]", rule="is needed for what stands on a drive: bytes a second of a node's drives, one direction",
                         nearest='nvme_rate = "25 GB/s"')  # fmt: skip
    return facts.nvme_rate or 1.0
