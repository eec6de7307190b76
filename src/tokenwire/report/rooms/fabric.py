"""A fabric to look at: its devices and links with their load, drawn whole where it is small, else around one rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, Fabric, without
from tokenwire.flows.heat import heat
from tokenwire.flows.heat_plot import colour
from tokenwire.flows.loads import link_bytes
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.flows import Traffic
    from tokenwire.journey import Journey

DRAWN = 120
"""Devices of the largest fabric that is drawn device by device."""
AROUND = 26
"""Devices drawn around a rank in a larger one."""
ROWS = ("core", "spine", "leaf", "nic", "gpu", "nvswitch", "pcie")
"""Kinds of devices from the top of a drawing to its bottom."""


def loaded(journey: Journey, failed: tuple[str, ...]) -> Traffic:
    """Return the traffic of a step, rerouted around devices or links that have failed. Raises ``InputError`` for ones that are none."""
    found = journey.traffic()
    return replace(found, fabric=without(found.fabric, failed)) if failed else found


def tiers(traffic: Traffic) -> list[dict[str, Any]]:
    """Return how hot each tier's links are, by direction; see ``flows.heat``."""
    return heat(traffic.fabric, traffic.link_bytes)


def link_facts(traffic: Traffic, link: int) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return one link, and who loads it: op, group, phase, parallelism, bytes. Raises ``InputError`` for one that is not there."""
    import polars as pl

    fabric = traffic.fabric
    if not 0 <= link < fabric.links:
        raise InputError(f"link {link:,}", rule=f"the fabric has links 0 to {fabric.links - 1:,}", nearest=str(fabric.links - 1))
    rows = []
    for kind in traffic.kinds:
        size = link_bytes(fabric, traffic.gpus(kind.pairs.src), traffic.gpus(kind.pairs.dst), kind.bytes, seed=traffic.seed, pxn=traffic.pxn)[link]
        if size:
            rows.append((kind.op, kind.group, kind.phase, kind.parallelism, int(size)))
    schema = {"op": pl.String, "group": pl.String, "phase": pl.String, "parallelism": pl.String, "bytes": pl.Int64}
    by = pl.DataFrame(rows, schema=schema, orient="row").group_by("op", "group", "phase", "parallelism", maintain_order=True).agg(pl.col("bytes").sum())
    about = {
        "link": link, "src": fabric.device_name(int(fabric.src[link])), "dst": fabric.device_name(int(fabric.dst[link])), "tier": TIERS[fabric.tier[link]],
        "rate": float(fabric.rate[link]), "latency": float(fabric.latency[link]), "bytes": int(traffic.link_bytes[link]),
        "seconds": float(traffic.link_bytes[link] / fabric.rate[link]) if fabric.rate[link] else 0.0,
    }  # fmt: skip
    return about, by.sort("bytes", descending=True)


def drawing(traffic: Traffic, rank: int, link: int | None) -> dict[str, Any]:
    """Return what is drawn: ``devices`` (name, kind, x, y, failed) and ``wires`` (a, b, link, bytes, share, colour, chosen), and whether ``whole``.

    A wire is both directions of all links between two devices; ``link`` is its busiest one, ``share`` its load over the
    busiest wire's. Of a large fabric the devices around ``rank`` are drawn (and the ends of ``link``).
    """
    fabric, load = traffic.fabric, traffic.link_bytes
    whole = fabric.devices <= DRAWN
    shown = np.arange(fabric.devices) if whole else np.asarray(_around(fabric, rank, link))
    mask = np.zeros(fabric.devices, dtype=bool)
    mask[shown] = True
    inside = np.flatnonzero(mask[fabric.src] & mask[fabric.dst])
    wires: dict[tuple[int, int], dict[str, Any]] = {}
    for one in inside.tolist():
        a, b = sorted((int(fabric.src[one]), int(fabric.dst[one])))
        size = int(load[one])
        wire = wires.setdefault((a, b), {"a": fabric.device_name(a), "b": fabric.device_name(b), "link": one, "most": -1, "bytes": 0, "links": 0})
        wire["bytes"] += size
        wire["links"] += 1
        if size > wire["most"]:
            wire["link"], wire["most"] = one, size
    ends = tuple(sorted((int(fabric.src[link]), int(fabric.dst[link])))) if link is not None and 0 <= link < fabric.links else None
    for pair, wire in wires.items():
        wire["chosen"] = pair == ends
    top = max((wire["bytes"] for wire in wires.values()), default=0) or 1
    for wire in wires.values():
        # Loads span decades: a root keeps small ones visible.
        wire["share"] = wire["bytes"] / top
        wire["colour"] = colour(0.2 + 0.8 * wire["share"] ** 0.4) if wire["bytes"] else "#ced4da"
        wire["text"] = format_bytes(wire["bytes"])
    return {"whole": whole, "devices": _placed(fabric, shown.tolist()), "wires": [*wires.values(), *_attached(fabric, mask)]}


def _attached(fabric: Fabric, mask: Any) -> list[dict[str, Any]]:
    if fabric.labels:
        return []
    pairs = [(gpu, int(nic)) for gpu, nic in enumerate(fabric.nic_of.tolist()) if gpu != nic and mask[gpu] and mask[nic]]
    return [{"a": fabric.device_name(gpu), "b": fabric.device_name(nic), "link": None, "bytes": 0, "links": 0, "share": 0.0, "colour": "#adb5bd", "text": "the same GPU's", "chosen": False}
            for gpu, nic in pairs]  # fmt: skip


def _around(fabric: Fabric, rank: int, link: int | None) -> list[int]:
    """Return devices near a GPU: its node, its NIC, the leaves above, spines and cores above those, as many as fit."""
    near = [rank, int(fabric.nic_of[rank])]
    if link is not None and 0 <= link < fabric.links:
        near += [int(fabric.src[link]), int(fabric.dst[link])]
    seen = list(dict.fromkeys(near))
    edge = list(seen)
    while edge and len(seen) < AROUND:
        found: list[int] = []
        for device in edge:
            # Only upwards (or to the node's switch): every leaf has hundreds of devices below it.
            above = fabric.dst[fabric.src == device]
            found += [int(one) for one in np.unique(above[above > device])[:12]]
        edge = [one for one in dict.fromkeys(found) if one not in seen]
        seen += edge
    return seen[:AROUND]


def _placed(fabric: Fabric, devices: list[int]) -> list[dict[str, Any]]:
    rows: dict[str, list[int]] = {}
    for device in sorted(devices):
        rows.setdefault(_kind(fabric, device), []).append(device)
    order = [kind for kind in ROWS if kind in rows] + [kind for kind in rows if kind not in ROWS]
    wide = max((len(members) for members in rows.values()), default=1)
    step = max(96.0 if fabric.devices > DRAWN else 54.0, 1000.0 / max(wide, 1))
    out = []
    for at, kind in enumerate(order):
        members = rows[kind]
        for k, device in enumerate(members):
            name = fabric.device_name(device)
            out.append({"name": name, "kind": kind, "device": device, "x": (k + 0.5) * wide / len(members) * step, "y": at * 110.0, "failed": name in fabric.failed})
    return out


def _kind(fabric: Fabric, device: int) -> str:
    if fabric.labels:
        return "gpu" if device < fabric.world else "switch"
    for kind, count in fabric.kinds:
        if device < count:
            return kind
        device -= count
    return "device"


def links(traffic: Traffic) -> pl.DataFrame:
    """Return all links, those that need longest first."""
    return traffic.links.sort(["seconds", "link"], descending=[True, False])
