"""A cluster as facts: what a catalog file, or a user's own file, says of it.

Catalog files are TOML, one a cluster, with the source of their figures. Rates are of one direction.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tokenwire.config import ComputeRate, MemorySize, Positive, Rate, Section, Time, read_section
from tokenwire.errors import InputError, unknown
from tokenwire.fabric.gpus import peak_of
from tokenwire.files import read_limited

LIMIT = 2**20
"""Bytes of the largest cluster file that is read."""


class ClusterFacts(Section):
    """What a cluster is built of.

    ``domain`` is what joins the GPUs of a node (``none``: nothing). A *unit* is the nodes that share leaves: with ``rails``
    R the NICs of a node go to R leaves, NIC i to leaf i mod R. ``nic_path`` is the farthest way from a GPU to its NIC, by
    NCCL's names (``PHB``: through the CPU). ``planes`` are separate networks, one port of each NIC in
    each. A *pod* is the units that share spines; cores join pods (``deep_units_per_pod`` units a pod where there are
    several). ``rail_only``: leaves of different rails share no spine. ``uplinks`` of a leaf, where not told by
    ``oversubscription`` (capacity down over capacity up). ``shape`` are the sides of a torus or HyperX, ``global_links`` the
    links of a dragonfly's router to other groups (half its group's routers, where not told). ``routing`` is how one
    of several equal ways is chosen (``choice``), ``hash`` the switches' hash, ``queue_pairs`` how many flows a connection is.
    What is known of a ``gpu`` by its name need not be said; ``gpu_memory``, ``gpu_capability`` (CUDA's, the major number),
    ``memory_rate``, ``processors`` and ``matmul_efficiency`` (the share of ``peak_flops`` that its best product reaches) are for others,
    and change it for those. ``host_rate`` is of the link between a GPU and its host, ``nvme_rate`` of a node's drives, both in one
    direction; ``cpu_adam_rate`` counts the parameters a second that a node's processors update.
    """

    title: str = ""
    source: str = ""
    notes: str = ""
    topology: Literal["clos", "torus", "hyperx", "dragonfly", "dragonfly_plus", "file"] = "clos"
    nodes: Positive = 1
    gpu: str = ""
    peak_flops: ComputeRate = 989e12
    gpu_memory: MemorySize | None = None
    gpu_capability: int | None = Field(default=None, ge=0, le=99)
    memory_rate: Rate | None = None
    processors: Positive | None = None
    host_rate: Rate | None = None
    nvme_rate: Rate | None = None
    cpu_adam_rate: float | None = Field(default=None, gt=0)
    matmul_efficiency: float | None = Field(default=None, gt=0, le=1)
    gpus_per_node: Positive = 8
    domain: Literal["nvlink", "pcie", "none"] = "nvlink"
    domain_rate: Rate = 450e9
    domain_latency: Time = 5e-7
    nics_per_node: Positive = 8
    nic_rate: Rate = 50e9
    nic_path: Literal["PIX", "PXB", "P2C", "PXN", "PHB", "SYS"] = "PXB"
    link_latency: Time = 5e-7
    rails: Positive = 1
    rail_only: bool = False
    planes: Positive = 1
    nodes_per_unit: Positive = 32
    units_per_pod: Positive = 8
    deep_units_per_pod: Positive = 4
    uplinks: Positive | None = None
    uplink_rate: Rate | None = None
    oversubscription: float = Field(default=1.0, gt=0, le=1024)
    core_oversubscription: float = Field(default=1.0, gt=0, le=1024)
    spine_radix: Positive = 64
    core_radix: Positive = 64
    dimensions: int = Field(default=3, ge=1, le=6)
    spines_per_pod: Positive = 18
    global_links: Positive | None = None
    leaf_radix: Positive | None = None
    shape: tuple[Positive, ...] | None = Field(default=None, min_length=1, max_length=6)
    routing: Literal["ecmp", "spray", "adaptive", "static", "dmod", "valiant", "ugal"] = "ecmp"
    hash: Literal["crc32", "toeplitz", "mixed"] = "crc32"
    queue_pairs: int = Field(default=1, ge=1, le=128)


def presets() -> tuple[str, ...]:
    """Return the names of the catalog.

    >>> "dgx-h100-superpod" in presets()
    True
    """
    folder = resources.files("tokenwire.fabric") / "catalog"
    return tuple(sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")))


@cache
def preset(name: str) -> ClusterFacts:
    """Return the facts of a catalog entry. Raises ``InputError`` with the known names.

    >>> preset("dgx-h100-superpod").gpus_per_node
    8
    """
    if name not in presets():
        raise unknown("cluster preset", name[:80], presets())
    text = (resources.files("tokenwire.fabric") / "catalog" / f"{name}.toml").read_text("utf-8")
    return changed(ClusterFacts(), tomllib.loads(text), f"catalog {name}")


def read_facts(path: str | Path) -> ClusterFacts:
    """Return the facts of a user's TOML file; ``preset = "..."`` in it names what the other keys change.

    Raises ``InputError`` for a file that is not such a file.
    """
    where = f"cluster file {str(path)!r}"
    data = read_limited(path, limit=LIMIT, what="cluster file")
    try:
        values: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(where, rule=f"is not UTF-8 (offset {error.start:,})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(where, rule=f"is not TOML ({error})", nearest="lines such as gpus_per_node = 8") from None
    base = values.pop("preset", None)
    if base is not None and not isinstance(base, str):
        raise InputError(f"preset = {base!r}"[:80], where=where, rule="must be a name")
    below = preset(base).model_dump(exclude_unset=True) if base else {}
    return changed(ClusterFacts.model_construct(**below), values, where)


def changed(facts: ClusterFacts, values: dict[str, Any], where: str) -> ClusterFacts:
    """Return the facts with other values for some keys (as users write them). Raises ``InputError`` for a wrong one."""
    read = read_section(ClusterFacts, values, where=where)
    return facts.model_copy(update=with_peak({key: getattr(read, key) for key in read.model_fields_set}))


def with_peak(values: dict[str, Any]) -> dict[str, Any]:
    """Return values that change facts, and with another ``gpu`` also its peak, which is not that of the GPU before.

    Raises ``InputError`` for a GPU that is not known and has no ``peak_flops``.
    """
    gpu = values.get("gpu")
    return values if not gpu or "peak_flops" in values else {**values, "peak_flops": peak_of(gpu)}
