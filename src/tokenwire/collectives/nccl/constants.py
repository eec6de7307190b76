"""The tables of NCCL's tuner and what NCCL sees of a GPU: facts from ``catalog/``, read once.

Latencies are microseconds and bandwidths GB/s (1e9 B/s), as in NCCL, so that every number can be held against its source.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tokenwire.errors import InputError, unknown

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
"""NCCL's algorithms by its own names, in its order (the first of equals is taken)."""
PROTOCOLS = ("LL", "LL128", "Simple")
"""NCCL's protocols, in its order."""
OPERATIONS = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
}
"""The operations that have a choice of algorithm, and NCCL's names for them."""


@dataclass(frozen=True)
class Generation:
    """What NCCL knows of a GPU: GB/s of one link as it counts it, and by the data sheet; speeds of a channel that it tries."""

    name: str
    title: str
    capability: int
    link: float
    link_nominal: float
    pci: float
    cpu: str
    intra: tuple[float, ...]
    inter: tuple[float, ...]


@cache
def tuner() -> dict[str, Any]:
    """Return the tuner's tables by name.

    >>> tuner()["hop_latency_us"]["net"]["Ring"]
    [2.7, 4.0, 14.0]
    """
    return _read("tuner.toml")


@cache
def generations() -> dict[str, Generation]:
    """Return the generations of GPU by name.

    >>> list(generations())
    ['volta', 'ampere', 'hopper', 'blackwell']
    """
    out: dict[str, Generation] = {}
    for name, facts in _read("gpus.toml").items():
        if isinstance(facts, dict) and "capability" in facts:
            speeds = {"intra": tuple(facts["intra"]), "inter": tuple(facts["inter"])}
            out[name] = Generation(name=name, **{**facts, **speeds})
    return out


def generation(name: str) -> Generation:
    """Return a generation by name. Raises ``InputError`` with the known names."""
    found = generations().get(name.lower())
    if found is None:
        raise unknown("generation of GPU", name[:80], generations())
    return found


def of_gpu(name: str) -> tuple[str, str]:
    """Return the generation of a GPU named as people do, and who made its server's CPU.

    Raises ``InputError`` for a GPU that NCCL does not run on, or that the catalog has not.

    >>> of_gpu("H800 SXM"), of_gpu("B200 in GB200")
    (('hopper', 'intel'), ('blackwell', 'arm'))
    """
    facts = _read("gpus.toml")
    found = next((gen for part, gen in facts["names"].items() if part in name.upper().split()), None)
    if found is None:
        raise InputError(f"GPU {name[:80]!r}", rule="is not one whose NCCL tuning is known",
                         nearest=f"a cluster of {', '.join(facts['names'])}")  # fmt: skip
    arm = any(part in name.upper() for part in facts["arm"]["names"])
    return found, "arm" if arm else generation(found).cpu


def sources() -> tuple[str, ...]:
    """Return where the facts come from."""
    return tuple(_read(name)["source"] for name in ("tuner.toml", "gpus.toml"))


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("tokenwire.collectives.nccl") / "catalog" / name).read_text("utf-8"))
