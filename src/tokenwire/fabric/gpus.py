"""The GPUs that are known by name: data sheets, and what was measured of them. Facts from ``gpus.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from tokenwire.errors import InputError, closest
from tokenwire.units import parse_flops

UNNAMED = "h100"
"""The GPU whose facts are taken where a cluster names none."""
TO_GIVE = "gpu_memory, memory_rate, peak_flops and, where they are known, gpu_capability, processors and matmul_efficiency"
"""What a cluster says of a GPU that is not known."""


def known() -> tuple[str, ...]:
    """Return the names in the catalog.

    >>> "h100" in known()
    True
    """
    return tuple(name for name, facts in _catalog().items() if "bf16" in facts)


def kind_of(gpu: str) -> str:
    """Return the catalog's name of a GPU named as clusters name it. Raises ``InputError`` with those known.

    >>> kind_of("B200 in GB200"), kind_of("A100 SXM")
    ('gb200', 'a100')
    """
    if not gpu:
        return UNNAMED
    best: tuple[int, str] | None = None
    for name in known():
        for part in (*_catalog()[name]["names"], name):
            if part.lower() in gpu.lower() and (best is None or len(part) > best[0]):
                best = (len(part), name)
    if best is None:
        raise InputError(f"GPU {gpu[:60]!r}", where="[cluster]", nearest=f"gpu = \"{closest(gpu.lower(), known()) or UNNAMED}\"",
                         rule=f"is not known: known are {', '.join(known())}; of another give {TO_GIVE}")  # fmt: skip
    return best[1]


def named_facts(gpu: str) -> dict[str, Any]:
    """Return the catalog's facts of a GPU by a name that has one of its names in it. Raises ``InputError`` with those known."""
    facts: dict[str, Any] = _catalog()[kind_of(gpu)]
    return facts


def peak_of(gpu: str) -> float:
    """Return the dense bf16 peak of a GPU in FLOP/s. Raises ``InputError`` with those known.

    >>> peak_of("H100 SXM")
    989000000000000.0
    """
    return float(parse_flops(named_facts(gpu)["bf16"]))


def sources() -> tuple[str, ...]:
    """Return where the facts come from."""
    return tuple(_catalog()["sources"].values())


@cache
def _catalog() -> dict[str, Any]:
    return tomllib.loads((resources.files("tokenwire.fabric") / "gpus.toml").read_text("utf-8"))
