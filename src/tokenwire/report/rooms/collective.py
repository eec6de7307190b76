"""A collective on a real cluster as NCCL carries it out: the table of nccl-tests, what crosses each link, and the plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.collectives.algorithm import MOST_RANKS
from tokenwire.collectives.nccl import Machine, Overrides, choose, crossings, graphs, read_overrides
from tokenwire.collectives.nccl.constants import ALGORITHMS, of_gpu, sources
from tokenwire.collectives.nccl.sweep import TYPES, Row, curves, read_sizes, sweep
from tokenwire.errors import InputError, unknown
from tokenwire.units import format_bytes, format_memory_rate, format_rate, format_seconds, parse_rate

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric import ClusterFacts
    from tokenwire.report.comparison.chart import Chart

DEFAULT_CLUSTER = "dgx-h100-superpod"


@dataclass(frozen=True)
class Asked:
    """An operation on a cluster: the machine as NCCL sees it, the sizes, what overrules its choice."""

    op: str
    cluster: str
    title: str
    gpu: str
    machine: Machine
    sizes: tuple[int, ...]
    dtype: str
    overrides: Overrides


def is_cluster(topology: str | None, algorithm: str | None) -> bool:
    """Return whether a real cluster is asked for: by its name or file, or by ``--algorithm nccl``.

    >>> is_cluster("dgx-h100-superpod", None), is_cluster("ring", None), is_cluster(None, "nccl")
    (True, False, True)
    """
    from tokenwire.fabric.facts import presets

    named = topology is not None and (topology in presets() or topology.endswith((".toml", ".xml")))
    return named or (algorithm or "").lower() == "nccl"


def check_topology(topology: str | None) -> None:
    """Raise ``InputError`` for a topology that is neither a small one nor a cluster.

    >>> check_topology("torus")
    """
    from tokenwire.collectives.topology import TOPOLOGIES, topology_named
    from tokenwire.fabric.facts import presets

    try:
        topology_named(topology or "switch")
    except InputError:
        raise unknown("topology", (topology or "")[:80], [*TOPOLOGIES, *presets()]) from None


def read(
    op: str, topology: str | None, algorithm: str | None, ranks: int, sizes: str, link: str | None, dtype: str,
    env: Sequence[str], sharp: bool = False,
) -> Asked:  # fmt: skip
    """Return what was asked for, every part of it checked. ``link`` is the rate of a NIC, where it differs.

    Raises ``InputError`` naming the option.
    """
    name = topology or DEFAULT_CLUSTER
    facts = _cluster(name)
    if dtype not in TYPES:
        raise unknown("type", dtype[:80], TYPES)
    gpu, cpu = of_gpu(facts.gpu)
    g = facts.gpus_per_node
    if ranks < 1 or (ranks > g and ranks % g):
        whole = max(min(ranks, MOST_RANKS) // g, 1) * g
        raise InputError(f"--ranks {ranks:,}", rule=f"must be 1 to {g} in one node, or whole nodes of {g}", nearest=f"--ranks {whole}")
    local = min(g, ranks)
    machine = Machine(
        gpu, nodes=ranks // local, ranks_per_node=local,
        nvlink_rate=facts.domain_rate if facts.domain == "nvlink" else 0.0,
        nics_per_node=max(1, facts.nics_per_node * local // g), nic_rate=parse_rate(link) if link else facts.nic_rate,
        # Boards of 4 are joined link by link, larger domains by switches.
        nvswitch=facts.domain == "nvlink" and g >= 8, sharp=sharp, cpu=cpu, nic_path=facts.nic_path,
    )  # fmt: skip
    return Asked(op, name, facts.title, facts.gpu, machine, tuple(read_sizes(sizes)), dtype, _overrides(algorithm, env))


def _cluster(name: str) -> ClusterFacts:
    """Return the facts of a cluster of the catalog, of a user's file, or of nodes as NCCL's topology file describes them."""
    from tokenwire.fabric import ClusterConfig, preset, presets
    from tokenwire.fabric.facts import read_facts
    from tokenwire.fabric.pcie_tree import read_tree

    if name.endswith(".toml"):
        return read_facts(name)
    if name.endswith(".xml"):
        facts = ClusterConfig(file=name).facts
        return facts.model_copy(update={"title": f"nodes as in {name}"[:78], "nic_path": read_tree(name).nic_path})
    if name not in presets():
        raise unknown("cluster", name[:80], presets(), where="--topology")
    return preset(name)


def _overrides(algorithm: str | None, env: Sequence[str]) -> Overrides:
    """Return the settings; an algorithm by NCCL's name (in any case) is ``NCCL_ALGO``."""
    if algorithm is None or algorithm.lower() == "nccl":
        return read_overrides(env)
    plain = {name.lower(): name for name in ALGORITHMS} | {"nvls_tree": "NVLSTree"}
    if algorithm.lower() not in plain:
        raise unknown("algorithm of NCCL", algorithm[:80], ["nccl", *ALGORITHMS])
    return read_overrides([f"NCCL_ALGO={plain[algorithm.lower()]}", *env])


def rows(asked: Asked) -> list[Row]:
    """Return the table, a row for each size."""
    return sweep(asked.machine, asked.op, asked.sizes, asked.dtype, asked.overrides)


def frame(asked: Asked) -> pl.DataFrame:
    """Return the table for a file; its columns carry their units."""
    import polars as pl

    names = ("size_bytes", "count", "type", "time_us", "algbw_gbytes_per_s", "busbw_gbytes_per_s", "algorithm", "protocol", "channels")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows(asked)], orient="row")


def facts(asked: Asked) -> dict[str, Any]:
    """Return everything by name, with units in the names."""
    machine, largest = asked.machine, max(asked.sizes)
    picked = choose(machine, asked.op, largest, asked.overrides)
    return {
        "op": asked.op,
        "cluster": asked.cluster,
        "title": asked.title,
        "gpu": asked.gpu,
        "ranks": machine.ranks,
        "nodes": machine.nodes,
        "ranks_per_node": machine.ranks_per_node,
        "nics_per_node": machine.nics_per_node,
        "nics_driven": machine.nics_driven,
        "nic_bytes_per_s": machine.nic_rate,
        "nvlink_bytes_per_s": machine.nvlink_rate,
        "overrides": asked.overrides.text,
        "graphs": {
            name: {"channels": graph.channels, "intra_gbytes_per_s": graph.intra, "inter_gbytes_per_s": graph.inter}
            for name, graph in graphs(machine).items()
            if graph.channels
        },
        "rows": frame(asked).to_dicts(),
        "crossing": [
            {**one._asdict(), "size_bytes": largest, "seconds": picked.seconds, "algorithm": picked.algorithm,
             "protocol": picked.protocol, "carried_bytes_per_s": _per_second(one.link_bytes, picked.seconds)}
            for one in crossings(machine, asked.op, picked.algorithm, picked.protocol, largest)
        ],
        "source": "; ".join(sources()),
    }  # fmt: skip


def _per_second(size: float, seconds: float) -> float:
    return size / seconds if seconds > 0 else 0.0


def picture(asked: Asked) -> Iterator[Any]:
    """Yield the table of nccl-tests, and below it what crosses each link at the largest size."""
    from rich.text import Text

    m = asked.machine
    where = f"{m.nodes:,} x {m.ranks_per_node} {asked.gpu}" if m.nodes > 1 else f"{m.ranks_per_node} {asked.gpu} in one node"
    nics = "1 NIC" if m.nics_per_node == 1 else f"{m.nics_per_node} NICs"
    unused = m.nics_per_node - m.nics_driven if m.nodes > 1 else 0
    net = f", {nics} of {format_rate(m.nic_rate)} per node" if m.nodes > 1 else ""
    yield Text(f"{asked.op} among {m.ranks:,} ranks: {where}{net}", style="bold")
    if unused:
        gpus = "1 GPU" if m.ranks_per_node == 1 else f"{m.ranks_per_node} GPUs"
        yield Text(f"{gpus} per node can drive {m.nics_driven} of them: PCIe carries {m.generation.pci:g} GB/s per GPU")
    yield Text(f"{asked.title or asked.cluster}; NCCL's own estimate" + (f"; {asked.overrides.text}" if asked.overrides.text else ""))
    yield Text(f"{'size':>13} {'count':>12} {'type':>9} {'time':>9} {'algbw':>7} {'busbw':>7}  picked")
    yield Text(f"{'B':>13} {'elements':>12} {'':>9} {'us':>9} {'GB/s':>7} {'GB/s':>7}")
    for r in rows(asked):
        yield Text(f"{r.size:>13} {r.elements:>12} {r.type:>9} {_figure(r.time):>9} {r.algbw:>7.2f} {r.busbw:>7.2f}  "
                   f"{r.algorithm} {r.protocol}")  # fmt: skip
    yield from _crossing_lines(asked)


def _figure(us: float) -> str:
    return f"{us:.0f}" if us >= 1e5 else f"{us:.1f}" if us >= 100 else f"{us:.2f}"


def _crossing_lines(asked: Asked) -> Iterator[Any]:
    from rich.text import Text

    m, largest = asked.machine, max(asked.sizes)
    picked = choose(m, asked.op, largest, asked.overrides)
    found = crossings(m, asked.op, picked.algorithm, picked.protocol, largest)
    if not found:
        yield Text("Nothing crosses a link.")
        return
    size = format_bytes(largest, binary=True)
    yield Text(f"What truly crosses a link, each way: {size} by {picked.algorithm}, {picked.protocol}, {format_seconds(picked.seconds)}")
    for one in found:
        carried = _per_second(one.link_bytes, picked.seconds)
        yield Text(
            f"  {one.link}: {one.formula} = {format_bytes(one.data_bytes)}, "
            f"{format_memory_rate(carried)} of its {format_memory_rate(one.rate)}"
        )
    above = [one for one in found if picked.busbw > one.rate * (m.nics_driven if one.link == "NIC" else 1)]
    for one in above:
        total = one.rate * (m.nics_driven if one.link == "NIC" else 1)
        whose = f"the {m.nics_driven} NICs of a node" if one.link == "NIC" and m.nics_driven > 1 else f"the {one.link}"
        yield Text(f"  busbw {format_memory_rate(picked.busbw)} is above {whose} ({format_memory_rate(total)}): "
                   f"it counts a ring's bytes, {picked.algorithm} sends fewer there.")  # fmt: skip


def chart(asked: Asked) -> Chart:
    """Return busbw by size, a line for each algorithm by its best protocol."""
    from tokenwire.collectives.busbw import busbw
    from tokenwire.report.comparison.chart import Chart, Series

    if len(asked.sizes) < 2:
        raise InputError("--plot of one size", rule="is not a line", nearest="--sizes 8B-8GiB")
    m, sizes = asked.machine, [size for size in asked.sizes if size > 0]
    series = tuple(
        Series(name, tuple(None if t is None or t <= 0 else busbw(asked.op, m.ranks, S, t) / 1e9 for S, t in zip(sizes, line, strict=True)))
        for name, line in curves(m, asked.op, sizes, asked.overrides).items()
    )
    return Chart(
        f"{asked.op}, {m.ranks:,} ranks on {m.nodes:,} nodes, {asked.cluster}: NCCL's estimate", "lines", "size of the full tensor",
        "busbw, GB/s", tuple(format_bytes(size, binary=True) for size in sizes), series, tuple(float(size) for size in sizes), False,
    )  # fmt: skip
