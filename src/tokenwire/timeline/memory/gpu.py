"""What memory needs to know of a GPU: its size, its generation, the attention that is preferred on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tokenwire.errors import InputError, closest
from tokenwire.fabric.gpus import known, named_facts
from tokenwire.units import format_bytes, parse_bytes

MIB = 2**20
SOURCE = "fabric/gpus.toml: data sheets"
GIVEN = "given: gpu_memory and gpu_capability"


@dataclass(frozen=True)
class GpuFacts:
    """``memory`` in bytes, the major compute ``capability`` (0: not CUDA), and the ``attention`` that is preferred on it."""

    name: str
    memory: int
    capability: int
    attention: str
    source: str

    @property
    def engine_workspace(self) -> int:
        """Return the bytes of Transformer Engine's cuBLAS workspace (pytorch/cpp_extensions/gemm.py: 32 MiB from Hopper on)."""
        return 32 * MIB if self.capability >= 9 else 4 * MIB


@cache
def gpu_facts(name: str, memory: int | None = None, capability: int | None = None) -> GpuFacts:
    """Return the facts of a GPU by a name of it, as clusters write it; ``memory`` and ``capability`` replace those of the catalog.

    A GPU that the catalog does not know needs ``memory``; without ``capability`` it is taken as no CUDA device. Raises ``InputError``
    with the known ones and what to give.

    >>> gpu_facts("H100 SXM").capability, gpu_facts("a100").engine_workspace, gpu_facts("A100 custom").memory // 2**30
    (9, 4194304, 64)
    >>> gpu_facts("RTX 6000", 48 * 2**30, 8).attention
    'flash'
    """
    try:
        facts = named_facts(name)
    except InputError:
        if memory is None:
            raise _unknown(name) from None
        return GpuFacts(name, memory, capability or 0, "fused" if (capability or 0) >= 9 else "flash", GIVEN)
    of = parse_bytes(facts["memory"]) if memory is None else memory
    return GpuFacts(
        name, of, facts["capability"] if capability is None else capability, facts["fused_attention"], SOURCE
    )


def _unknown(name: str) -> InputError:
    sizes = ", ".join(
        f"{each} ({format_bytes(parse_bytes(named_facts(each)['memory']), binary=True)})" for each in known()
    )
    return InputError(f"GPU {name[:60]!r}", nearest=closest(name.lower(), known()) or "H100 SXM",
                      rule=f"its memory is not known: known are {sizes}; for another give its memory, --option gpu_memory=48GiB, and its "
                      "major CUDA compute capability, --option gpu_capability=8, which libraries size their workspaces by, or both in [cluster]")  # fmt: skip
