"""What the network must offer by the time line, to read: figures, growth, plans, and two networks side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.report.terminal import console, table
from tokenwire.units import (
    format_bytes,
    format_count,
    format_quantity,
    format_rate,
    format_seconds,
    parse_seconds,
)

if TYPE_CHECKING:
    from tokenwire.journey import Journey
    from tokenwire.needs import Timed

SPEEDS = (25, 50, 100, 200, 400, 800, 1600)
"""Gb/s of the NICs that can be bought."""
MOST_PLANS = 12
SHORTEST = 1e-3
"""Seconds of the shortest time between checkpoints."""


def only_one(asked: Sequence[str]) -> None:
    """Raise ``InputError`` where more than one question was asked, for one answer is printed."""
    if len(asked) > 1:
        raise InputError(" and ".join(asked), rule="are different questions: ask one at a time", nearest=asked[0])


def check_drawn(path: str, asked: Mapping[str, object]) -> None:
    """Raise ``InputError`` where a plot was asked of an answer that is a table only."""
    for name, value in asked.items():
        if value:
            raise InputError(f"--plot {path}"[:120], rule=f"draws the needs, or --efficiency, not {name}", nearest=f"--plot without {name}")


def timed_of(journey: Journey) -> Timed:
    """Return a journey's plan, to be timed on its cluster and others like it."""
    from tokenwire.needs import Timed

    return Timed(journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts)


def figures(journey: Journey, exposed: float, every: str | None = None) -> tuple[Figure, ...]:
    """Return the figures by the time line; ``every`` is the time between checkpoints, with its unit."""
    from tokenwire.model import parameters
    from tokenwire.needs import timed_requirements
    from tokenwire.needs.storage import EVERY

    seconds = EVERY if every is None else parse_seconds(every)
    if not SHORTEST <= seconds < math.inf:
        raise InputError(f"--checkpoint {every}"[:80], rule="must be a time of at least 1 ms", nearest='--checkpoint "1800 s"')
    return timed_requirements(timed_of(journey), parameters(journey.model().architecture).total, exposed, seconds)


def efficiency(journey: Journey, wanted: float) -> dict[str, Any]:
    """Return the least NIC for an efficiency (T(∞)/T(R)), the one that can be bought, and the efficiency of each of those."""
    from tokenwire.needs.shares import asked

    timed = timed_of(journey)
    rate = timed.least_rate(1 - asked("efficiency", wanted, "90%"))
    speeds = [{"nic_rate": g * 1e9 / 8, "efficiency": timed.efficiency(g * 1e9 / 8), "step_seconds": timed.step(nic_rate=g * 1e9 / 8).step_seconds}
              for g in SPEEDS]  # fmt: skip
    return {"wanted": wanted, "least_nic_rate": rate or 0.0, "speeds": speeds,
            "buy": next((one["nic_rate"] for one in speeds if one["efficiency"] >= wanted), None)}  # fmt: skip


def growth(journey: Journey, exposed: float) -> list[dict[str, Any]]:
    """Return how the cluster may grow: a row a size, the batch fixed or growing with it."""
    from tokenwire.needs import largest

    return [asdict(one) for one in largest(journey.model().architecture, journey.plan(), journey.config.cluster.facts, exposed)]


def plans(journey: Journey) -> list[dict[str, Any]]:
    """Return the plans that suit the cluster, a row each, best first."""
    from tokenwire.needs import plans_of

    return [asdict(one) for one in plans_of(journey.model().architecture, journey.plan(), journey.config.cluster.facts)]


def beside(one: Journey, other: Journey) -> list[dict[str, Any]]:
    """Return two journeys side by side: seconds of their steps, what they wait for, and the network's share."""
    out = []
    for journey in (one, other):
        timed, facts = timed_of(journey), journey.config.cluster.facts
        step = timed.step()
        out.append({
            "cluster": facts.title or journey.config.cluster.preset, "nic_rate": facts.nic_rate, "nics_per_node": facts.nics_per_node,
            "step_seconds": step.step_seconds, "compute_seconds": step.compute_seconds,
            "exposed_communication_seconds": step.exposed_communication_seconds, "bubble_seconds": step.bubble_seconds,
            "network_share": timed.costs(), "mfu": step.mfu,
            "tokens_per_second": step.tokens_per_second,
        })  # fmt: skip
    return out


def show_efficiency(found: dict[str, Any]) -> None:
    """Print which NIC an efficiency takes."""
    rows = [(format_rate(one["nic_rate"]), format_seconds(one["step_seconds"]), f"{one['efficiency']:.1%}".replace("%", " %"),
             "enough" if one["efficiency"] >= found["wanted"] else "") for one in found["speeds"]]  # fmt: skip
    title = f"Least NIC for {found['wanted']:.0%} of the speed that an endless network would allow: {format_rate(found['least_nic_rate'])}"
    console().print(table(rows, ("NIC", "step", "efficiency", ""), right=("NIC", "step", "efficiency"), title=title))


def show_growth(found: Sequence[dict[str, Any]], exposed: float) -> None:
    """Print how the cluster may grow."""
    rows = [(one["batch"], format_count(one["gpus"]), format_count(one["global_batch"]), format_seconds(one["seconds"]),
             f"{one['share']:.1%}".replace("%", " %"), f"{one['mfu']:.1%}".replace("%", " %")) for one in found]  # fmt: skip
    if not rows:
        console().print(f"even this cluster's network costs more than {format_quantity(exposed, '%')} of the step")
        return
    columns = ("batch", "GPUs", "sequences", "step", "network", "MFU")
    console().print(table(rows, columns, right=columns[1:], title=f"As large as the network costs at most {format_quantity(exposed, '%')} of the step"))


def show_plans(found: Sequence[dict[str, Any]]) -> None:
    """Print which plans suit the cluster."""
    rows = [(f"{one['tp']}", f"{one['pp']}", f"{one['cp']}", f"{one['dp']}", format_seconds(one["seconds"]), f"{one['share']:.1%}".replace("%", " %"),
             f"{one['mfu']:.1%}".replace("%", " %"), format_bytes(one["peak"]) if one["peak"] is not None else "?",
             {True: "yes", False: "no", None: "?"}[one["fits"]]) for one in found[:MOST_PLANS]]  # fmt: skip
    columns = ("tp", "pp", "cp", "dp", "step", "network", "MFU", "peak memory", "fits")
    more = f", {len(found) - MOST_PLANS} more were timed" if len(found) > MOST_PLANS else ""
    console().print(table(rows, columns, right=columns, title=f"Plans for this cluster, those that fit first{more}"))


def show_beside(found: Sequence[dict[str, Any]]) -> None:
    """Print two networks side by side."""
    one, other = found
    lines = [
        ("NIC", *(f"{x['nics_per_node']} x {format_rate(x['nic_rate'])}" for x in found)),
        *((name, *(format_seconds(x[key]) for x in found)) for name, key in (
            ("step", "step_seconds"), ("computing", "compute_seconds"), ("waiting for calls", "exposed_communication_seconds"),
            ("bubble", "bubble_seconds"))),
        ("network's share", *(f"{x['network_share']:.1%}".replace("%", " %") for x in found)),
        ("MFU", *(f"{x['mfu']:.1%}".replace("%", " %") for x in found)),
    ]  # fmt: skip
    ratio = other["step_seconds"] / one["step_seconds"] - 1
    title = f"Two networks: the second makes the step {abs(ratio):.1%} {'longer' if ratio >= 0 else 'shorter'}"
    columns = ("", "this one", "the other")
    console().print(table(lines, columns, right=columns[1:], title=title))
