"""The sections of the report: the scenes of the walk in their order, each with its drawings, and between them collectives, flows, time, memory."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from tokenwire.collectives import algorithms, cost
from tokenwire.flows import reading_flows
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.page import drawings
from tokenwire.report.page.section import Drawn, Section
from tokenwire.report.page.timing import memory_section, needs_section, time_section
from tokenwire.report.scenes import SCENES, Walk
from tokenwire.report.terminal import table
from tokenwire.text import types
from tokenwire.units import format_bytes, unit_of_bytes
from tokenwire.wire import framings

LARGEST_FLOWS = 512
"""GPUs up to which flows are shared out for the page."""
_SIZES = tuple(1 << power for power in range(6, 31, 2))
_LEADS = {
    "verse": "Everything begins with a text. This is the part of it that the page follows.",
    "words": "Few words are common and most are rare: so a model cannot have a row for every word.",
    "tokens": "The text is cut into pieces with a number each. From here on the network carries numbers only.",
    "vector": "The number picks a row of a table: the vector that the model works with, and in bf16 two bytes a number.",
    "model": "The vector passes through layers. Their parameters are what is trained, and what optimizers and networks move.",
    "plan": "No GPU holds it all: the plan says which rank has which layers, which part of each tensor, which sequences.",
    "step": "What one GPU has is needed by others. These are the calls of one optimizer step.",
    "traffic": "Calls become bytes between pairs of GPUs.",
    "links": "Bytes between GPUs become bytes on links: some are loaded, others idle.",
    "packet": "A message is cut into packets, each with headers. This one carries the token that is followed.",
    "needs": "What all this asks of the network, each figure with its derivation.",
}


def sections(walk: Walk) -> Iterator[Section]:
    """Yield every section of the report of a walk, in the order of the journey."""
    for name, title in SCENES.items():
        scene = import_module(f"tokenwire.report.scenes.{name}")
        facts = scene.facts(walk)
        drawn = drawings_of(name, walk, facts)
        yield Section(name, title, _LEADS[name], drawn, tuple(scene.picture(_without_drawn(name, facts, drawn))))
        if name == "step":
            yield from _collective(walk)
        if name == "links":
            yield from _flows(walk)
        if name == "packet":
            yield from time_section(walk.journey)
            yield from memory_section(walk.journey)
        if name == "needs":
            yield from needs_section(walk.journey)


def drawings_of(name: str, walk: Walk, facts: dict[str, Any]) -> tuple[Drawn, ...]:
    """Return what is drawn of a scene from its facts; nothing for a scene that has no drawing."""
    return tuple(_DRAWN[name](walk, facts)) if name in _DRAWN else ()


def _without_drawn(name: str, facts: dict[str, Any], drawn: tuple[Drawn, ...]) -> dict[str, Any]:
    # What is drawn better here is not printed as well.
    if not drawn:
        return facts
    if name == "tokens":
        return {**facts, "tokens": []}
    hidden = {"plan": "grid", "traffic": "matrix"}.get(name)
    return {**facts, "journeys": [{**one, hidden: []} for one in facts["journeys"]]} if hidden else facts


def _words(walk: Walk, _facts: dict[str, Any]) -> Iterator[Drawn]:
    counts = sorted(types(walk.journey.text().content).values(), reverse=True)
    marks = {1, len(counts), *(10**power for power in range(1, 7) if 10**power < len(counts))}
    ranks = sorted({*marks, *np.geomspace(1, len(counts), 24).astype(int).tolist()}) if len(counts) > 1 else []
    if ranks:
        line = Series("words of the text", tuple(float(counts[rank - 1]) for rank in ranks))
        yield Drawn(
            Chart("How often the words occur", "lines", "rank of the word, the most common first", "times",
                  tuple(f"{rank:,}" if rank in marks else "" for rank in ranks),
                  (line,), tuple(float(rank) for rank in ranks)),
            "Zipf's law: on logarithmic axes the counts of words fall along nearly a straight line.",
        )  # fmt: skip


def _tokens(_walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    yield Drawn(drawings.tokens(facts["tokens"]), "The verses as tokens, and the id of each.")


def _vector(_walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    row = facts["journeys"][0]
    yield Drawn(drawings.bits(row["bf16"], row["bits"]), "The first numbers of the token's row, each in the 16 bits that travel.")


def _model(_walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    model = facts["journeys"][0]
    named = [("embedding", "embedding_parameters"), ("positions", "position_parameters"), ("layers", "layer_parameters"), ("head", "head_parameters")]
    rows = [(name, float(model[key]), f"{model[key]:,}") for name, key in named if model[key]]
    yield Drawn(drawings.shares(rows, "parameters by part"), "Where the parameters are.")


def _plan(walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    plan = facts["journeys"][0]
    if plan["grid"]:
        place = facts["placement"]
        marked = [cell["rank"] for cell in plan["grid"] if cell.get("dp", 0) == place["replica"]] if plan["dp"] > 1 else []
        said = f" Framed: the ranks that work on token {walk.token_text}." if marked else ""
        yield Drawn(drawings.grid(plan, marked), f"Ranks in their nodes; colour is the pipeline stage.{said}")


def _step(_walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    ops = facts["journeys"][0]["ops"]
    phases = list(dict.fromkeys(op["phase"] for op in ops))
    kinds = list(dict.fromkeys(op["parallelism"] for op in ops))
    if ops:
        sums = {(phase, kind): sum(op["step_bytes"] for op in ops if (op["phase"], op["parallelism"]) == (phase, kind)) for phase in phases for kind in kinds}
        scale, unit = unit_of_bytes(max(sums.values()))
        series = tuple(Series(kind, tuple(sums[phase, kind] / scale for phase in phases)) for kind in kinds)
        yield Drawn(
            Chart("Full tensors of all calls of a rank of stage 0", "stacked", "phase of the step", f"{unit} a step", tuple(phases), series, log_y=False),
            "When it is said, and which parallelism asks for it.",
        )  # fmt: skip


def _traffic(_walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    if facts["journeys"][0]["matrix"]:
        yield Drawn(drawings.matrix(facts["journeys"][0]["matrix"]), "Who talks to whom: darker is more.")


def _links(walk: Walk, _facts: dict[str, Any]) -> Iterator[Drawn]:
    fabric, links = walk.journey.fabric(), walk.journey.traffic().links
    if drawings.drawable(fabric) and len(links):
        load = np.zeros(len(fabric.src), np.int64)
        load[links["link"].to_numpy()] = links["bytes"].to_numpy()
        yield Drawn(drawings.network(fabric, load), "The fabric: wide and warm lines carry much, thin ones nothing. From a GPU to its NIC go the bytes of that NIC.")


def _packet(walk: Walk, facts: dict[str, Any]) -> Iterator[Drawn]:
    if facts["message"] is not None:
        yield Drawn(drawings.frame(facts["packet"]["fields"]), "The frame from first byte to last.")
        wire = walk.journey.config.wire
        # Goodput by size of message.
        shares = [100 * size / int(row["wire_bytes"]) for size, row in zip(_SIZES, framings(list(_SIZES), wire), strict=True)]
        yield Drawn(
            Chart(f"Payload in % of the bytes on the wire, {wire.transport}, MTU {wire.mtu or 'default'}", "lines", "size of the message", "%",
                  tuple(format_bytes(size, binary=True) for size in _SIZES), (Series("goodput", tuple(shares)),), tuple(map(float, _SIZES)), log_y=False),
            "Small messages pay for their headers.",
        )  # fmt: skip


_DRAWN: dict[str, Any] = {
    "words": _words, "tokens": _tokens, "vector": _vector, "model": _model, "plan": _plan, "step": _step, "traffic": _traffic,
    "links": _links, "packet": _packet,
}  # fmt: skip


def _collective(walk: Walk) -> Iterator[Section]:
    rows = walk.journey.step().filter((walk.journey.step()["stage"] == 0) & walk.journey.step()["op"].is_in(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
    if rows.is_empty():
        return
    row = rows.row(int((rows["bytes"] * rows["count"]).arg_max() or 0), named=True)
    op, n, size, fabric = row["op"], int(row["group_size"]), int(row["bytes"]), walk.journey.fabric()
    rate, latency = (float(fabric.rate[0]), float(fabric.latency[0])) if len(fabric.rate) else (fabric.nic_rate, 1e-6)
    found = [cost(op, name, n, size, rate=rate, latency=latency) for name in algorithms(op) if _works(op, name, n)]
    lines = [(one.algorithm, one.steps, format_bytes(one.sent_bytes), f"{one.seconds * 1e6:.3g} us") for one in found]
    shown = "ring" if _works(op, "ring", max(n, 4)) else found[0].algorithm
    yield Section(
        "collective", "How it is said",
        f"The largest call of a step, {op} of {format_bytes(size)} over {n:,} ranks of {row['group']}, as transfers between pairs.",
        (Drawn(drawings.rounds(op, shown, max(n, 4)), f"{op} by {shown}, drawn for {min(max(n, 4), 8)} ranks: arrows are transfers, colours pieces."),),
        (table(lines, ["algorithm", "rounds", "a rank sends", "time"], right=["rounds", "a rank sends", "time"],
               title=f"{format_bytes(size)} over {n:,} ranks, links of the first tier"), found[0].derivation.derivation),
    )  # fmt: skip


def _works(op: str, name: str, n: int) -> bool:
    from tokenwire.errors import InputError

    try:
        cost(op, name, n, 1 << 20, rate=1e9, latency=1e-6)
    except InputError:
        return False
    return True


def _flows(walk: Walk) -> Iterator[Section]:
    if walk.journey.plan().world > LARGEST_FLOWS or walk.journey.traffic().transfers.is_empty():
        return
    asked = reading_flows.flows(walk.journey.traffic(), [], [], 0)
    parts = tuple(table(rows, columns, right=right, title=title) for title, columns, right, rows in reading_flows.tables(asked))
    lead = "Flows that share a link share its rate. The time of each kind of call, all its flows at once, beside the least that the busiest link allows."
    yield Section("flows", "Who is in whose way", lead, (), parts)
