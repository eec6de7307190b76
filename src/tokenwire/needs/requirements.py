"""What the network must offer, figure by figure, each with its derivation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenwire.figures import Figure
from tokenwire.needs.bandwidth import (
    bandwidth_figures,
    bisection_figure,
    rate_with_overlap,
    tolerated_oversubscription,
)
from tokenwire.needs.compute import MFU, compute_time
from tokenwire.needs.messages import framing_by_key, messages
from tokenwire.needs.network import Network, network_of
from tokenwire.needs.rings import busiest_by_channels
from tokenwire.needs.shares import asked
from tokenwire.needs.volumes import busiest, by_medium, volume_figures
from tokenwire.units import ITEM_BYTES, format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric import Fabric
    from tokenwire.flows import Traffic
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan
    from tokenwire.wire import WireConfig


def requirements(
    operations: pl.DataFrame,
    *,
    plan: Plan,
    architecture: Architecture,
    traffic: Traffic,
    fabric: Fabric,
    wire: WireConfig,
    exposed: float = 0.1,
    mfu: float | None = None,
) -> tuple[Figure, ...]:
    """Return what one training step asks of the network, each figure with formula, values, source and reason.

    ``operations`` is the step table, ``traffic`` its bytes between GPUs; ``exposed`` the share of a step in which
    GPUs may only wait for the network, ``mfu`` the share of a GPU's peak that computing reaches (None: ``compute.MFU``).
    Raises ``InputError`` for shares below 0.1 % or above 99.9 %.
    """
    asked("exposed", exposed, "10%")
    asked("mfu", MFU if mfu is None else mfu, "40%")
    network = network_of(traffic, fabric)
    sent = messages(operations, wire)
    time = compute_time(
        architecture, tokens=plan.training.global_batch * plan.training.sequence_length, s=plan.training.sequence_length,
        gpus=plan.world, peak=network.peak_flops, mfu=MFU if mfu is None else mfu,
    )  # fmt: skip
    transfers = by_medium(network.transfers, network.gpus_per_node)
    return (
        *volume_figures(busiest(transfers)),
        time,
        *_message_figures(sent),
        *_network_figures(network, transfers, sent, time.value, exposed, busiest_by_channels(transfers, plan, fabric.facts)),
    )


def _message_figures(sent: pl.DataFrame) -> Iterator[Figure]:
    if not len(sent):
        return
    call = sent.sort("bytes", descending=True).row(0, named=True)
    yield Figure(
        "largest tensor of one call", call["bytes"], "B", call["formula"] and f"({call['formula']})·bytes of {call['dtype']}",
        call["values"] and f"{_bracketed(call['values'])}·{ITEM_BYTES[call['dtype']]:g} B", call["source"],
        f"{call['op']} on {call['group']}: {call['what']}",
    )  # fmt: skip
    row = sent.sort("message", descending=True).row(0, named=True)
    n, size = row["group_size"], format_bytes(row["bytes"])
    whole = row["op"] in ("send", "broadcast", "reduce")
    yield Figure(
        "largest message from one GPU to another", row["message"], "B", "S" if whole else "S/n", size if whole else f"{size}/{n}",
        "NVIDIA/nccl-tests, doc/PERFORMANCE.md", f"{row['op']} on {row['group']}: {row['what']}",
    )  # fmt: skip


def _bracketed(term: str) -> str:
    return term if term.replace(",", "").isdigit() else f"({term})"


def _network_figures(
    network: Network, transfers: pl.DataFrame, sent: pl.DataFrame, t: float, x: float, by_channels: float | None
) -> Iterator[Figure]:
    if not network.nic_bytes:
        yield Figure(
            "bytes through the busiest NIC per step", 0, "B", because="all GPUs that talk to each other share a node"
        )
        return
    per_byte = _per_network_byte(transfers, sent)
    yield Figure(
        "bytes through the busiest NIC per step", network.nic_bytes, "B", "max over NICs of Σ bytes it sends", "",
        "tokenwire.flows", f"{format_count(network.nics)} NICs send; {network.busiest_nic} sends most; one ring a group",
    )  # fmt: skip
    nic_bytes = float(network.nic_bytes)
    if by_channels is not None and by_channels != nic_bytes:
        nic_bytes = by_channels
        yield Figure(
            "the same where rings are laid over all NICs", nic_bytes, "B", "Σ sends of its GPUs + Σ rings of a node / their NICs", "",
            "tokenwire.needs.rings, tokenwire.collectives.nccl", "NCCL's channels share the bytes of a ring; all that follows of a NIC is of these",
        )  # fmt: skip
    on_wire = nic_bytes * per_byte["wire_per_byte"]
    yield Figure(
        "the same with headers, preamble and gap", on_wire, "B", "bytes · wire bytes a byte",
        f"{format_bytes(nic_bytes)}·{per_byte['wire_per_byte']:.4f}", "tokenwire.wire.framing",
    )  # fmt: skip
    yield from bandwidth_figures(on_wire, t, x, has=network.nic_rate)
    count = nic_bytes * per_byte["packets_per_byte"]
    span = t / (1 - x)
    yield Figure(
        "packets per second through it, if everything overlaps", round(count / span), "packets/s",
        "packets a step · (1-x)/t", f"{format_count(round(count))}·{1 - x:.3g}/{format_seconds(t)}", "tokenwire.wire.framing",
        f"mean over the step, {format_bytes(nic_bytes / count)} of payload a packet",
    )  # fmt: skip
    yield bisection_figure(network.bisection_bytes, t, x)
    yield from _spine_figures(network, t, x)


def _spine_figures(network: Network, t: float, x: float) -> Iterator[Figure]:
    leaf = network.leaf
    if leaf is None:
        return
    most = tolerated_oversubscription(network.nic_bytes, leaf.nics, leaf.up_bytes)
    name, source = "oversubscription that the leaves tolerate", "tokenwire.needs.bandwidth, tolerated_oversubscription"
    if not leaf.up_bytes:
        yield Figure(name, most, ": 1", source=source, because="no byte leaves a leaf upwards: this plan needs no uplink",
                     main=True)
        return
    yield Figure(
        f"{name}, packets sprayed evenly", most, ": 1", "min(NICs, bytes of the busiest NIC · NICs of the leaf / bytes that the leaf sends up)",
        f"min({leaf.nics}, {format_bytes(network.nic_bytes)}·{leaf.nics}/{format_bytes(leaf.up_bytes)})", source,
        f"{leaf.name} sends most upwards, taken as even over its uplinks; more and the uplinks, not a NIC, hold the step up",
        main=True,
    )  # fmt: skip
    yield from _whole_flows(network, name)
    yield Figure(
        "bandwidth a leaf needs upwards, if everything overlaps", rate_with_overlap(leaf.up_bytes, t, x), "B/s",
        "bytes that the leaf sends up · (1-x)/t", f"{format_bytes(leaf.up_bytes)}·{1 - x:.3g}/{format_seconds(t)}",
        "tokenwire.needs.bandwidth", leaf.name,
    )  # fmt: skip


def _whole_flows(network: Network, name: str) -> Iterator[Figure]:
    """Yield what is tolerated where flows are not cut: by the fabric's own routing, and the most that any placing of flows allows."""
    spine = network.spine
    if spine is None or spine.routing == "spray":
        return
    loads = [(f"flows by {spine.routing}", spine.busiest, "bytes of the busiest spine link")]
    if spine.routing != "adaptive" and spine.largest_flow:
        loads.append(("flows placed by load (adaptive), at most", spine.largest_flow, "bytes of the largest flow over a spine"))
    for how, load, what in loads:
        ratio = network.nic_bytes / network.nic_rate / (load / spine.rate) * spine.oversubscription
        yield Figure(
            f"{name}, {how}", ratio, ": 1", f"(bytes of the busiest NIC / its rate) / ({what} / its rate) · oversubscription",
            f"({format_bytes(network.nic_bytes)}/{format_rate(network.nic_rate)})/({format_bytes(load)}/{format_rate(spine.rate)})"
            f"·{spine.oversubscription:g}",
            "tokenwire.needs.network", "below 1 : 1 a spine link already takes longer than any NIC" if ratio < 1 else "",
            main=True,
        )  # fmt: skip


def _per_network_byte(transfers: pl.DataFrame, sent: pl.DataFrame) -> dict[str, float]:
    """Return packets and wire bytes for each payload byte on the network, as its kinds of transfer share it."""
    import polars as pl

    kinds = ["op", "group", "phase", "parallelism"]
    on_network = transfers.filter(pl.col("medium") == "network")
    # In one node of a torus nothing leaves the node, yet all of it goes by links of the network.
    shares = (on_network if len(on_network) else transfers).group_by(kinds).agg(pl.col("bytes").sum())
    joined = shares.join(framing_by_key(sent), on=kinds, how="inner")
    weight = float(joined["bytes"].sum())
    return {name: float((joined[name] * joined["bytes"]).sum()) / weight for name in ("packets_per_byte", "wire_per_byte")}
