"""The sections of time and memory, and of what is needed in time: a step stage by stage, a GPU when it is fullest, the least rates."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.errors import InputError
from tokenwire.journey import Journey
from tokenwire.report.page.section import Drawn, Section
from tokenwire.report.rooms import memory, needs, needs_by_time, time, time_plot
from tokenwire.report.rooms.time_gantt import some_stages
from tokenwire.report.terminal import table
from tokenwire.units import format_seconds

FREE = 0.05
"""Share of a GPU's memory that must stay free, as in ``tokenwire memory``."""
WAITING = 0.1
"""Share of a step that may wait for the network, as in ``tokenwire needs``."""
MOST_ACTIONS = 600
"""Actions of the pipeline up to which every one is drawn: more would be thinner than a line, and megabytes."""


def time_section(journey: Journey) -> Iterator[Section]:
    """Yield the section of time; none where its GPU or its plan is not known there."""
    try:
        found = time.timed(journey)
    except InputError:
        return
    rows = [
        (f"{one.stage}", *(format_seconds(value) for value in (one.compute, one.communication, one.bubble, one.optimizer)))
        for one in some_stages(found.stages)
    ]
    columns = ("stage", "computing", "exposed", "bubble", "optimizer")
    drawn = (Drawn(time_plot.svg(found), "One step: a row a stage.", paper=True),) if len(found.run.ended) <= MOST_ACTIONS else ()
    derived = [(figure.name, figure.text, figure.derivation) for figure in found.figures]
    yield Section(
        "time", "When it is said",
        f"One step takes {format_seconds(found.step_seconds)}: computing, waiting for what is said (exposed), waiting for other stages (bubble).",
        drawn,
        (table(rows, columns, right=columns, title="Seconds of a step, by stage"), table(derived, ("figure", "value", "how"), right=("value",)),
         *(f"Note: {note}." for note in found.notes)),
    )  # fmt: skip


def memory_section(journey: Journey) -> Iterator[Section]:
    """Yield the section of memory; none where the plan's framework is not known there."""
    try:
        found = memory.found(journey, None, None, FREE)
    except InputError:
        return
    yield Section(
        "memory", "What it holds",
        f"What stands in the memory of a rank when it is fullest: weights, gradients, what the optimizer keeps, and activations, on a {found.gpu}.",
        (Drawn(memory.chart(found), "The peak of each stage, by kind."),), tuple(memory.verdict(found.fit)),
    )  # fmt: skip


def needs_section(journey: Journey) -> Iterator[Section]:
    """Yield the section of needs by the time line; none where its GPU or its plan is not known there."""
    try:
        found = needs_by_time.figures(journey, WAITING)
    except InputError:
        return
    yield Section(
        "needs-in-time", "How fast it must be",
        f"The least rates and the longest latencies at which the network costs no more than {WAITING:.0%} of a step, and what storage must bear.",
        (), tuple(needs.picture(needs.facts(found))),
    )  # fmt: skip
