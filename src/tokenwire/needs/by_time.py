"""What the network must offer by the time line: rates and latencies at which a step is as fast as asked for, buffers, queue pairs."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.figures import Figure
from tokenwire.needs.shares import asked
from tokenwire.needs.storage import EVERY, storage_figures
from tokenwire.needs.timed import ENDLESS, Timed
from tokenwire.needs.volumes import PARALLELISMS
from tokenwire.timeline import accelerator_of
from tokenwire.timeline.on_wire import Burst, Signature, signatures
from tokenwire.units import format_bytes, format_quantity, format_rate, format_seconds

_SOURCE = "tokenwire.needs.timed"


def timed_requirements(timed: Timed, parameters: int, x: float, every: float = EVERY) -> tuple[Figure, ...]:
    """Return what a step asks of the network if it may cost at most a share ``x`` of it, each figure with formula and reason.

    ``parameters`` of the model, ``every`` seconds a checkpoint.
    """
    asked("exposed", x, "10%")
    plan, step = timed.plan, timed.step()
    tokens = plan.training.global_batch * plan.training.sequence_length
    return (
        *_step_figures(timed), *_rate_figures(timed, x), *_wire_figures(timed),
        *storage_figures(parameters, tokens, step.step_seconds, x, every, vocabulary=timed.arch.vocabulary_size),
    )  # fmt: skip


def _step_figures(timed: Timed) -> Iterator[Figure]:
    step, now = timed.step(), timed.step().step_seconds
    best, fast = timed.alone().step_seconds, timed.step(nic_rate=ENDLESS).step_seconds
    yield Figure("a step by the time line", now, "s", "T(R)", "", "tokenwire.timeline", "; ".join(step.notes[:2]), main=True)
    yield Figure(
        "share of the step that the network costs", timed.costs(), "%", "1 - T₀/T(R)",
        f"1 - {format_seconds(best)}/{format_seconds(now)}", _SOURCE,
        f"T₀: what leaves a node takes no time; endless NICs alone, with the same latency, would save {max(0.0, 1 - fast / now):.2%} of the step",
        main=True,
    )  # fmt: skip


def _rate_figures(timed: Timed, x: float) -> Iterator[Figure]:
    facts, share = timed.facts, format_quantity(x, "%")
    rate = timed.least_rate(x)
    name = f"NIC for {share} of the step, by the time line"
    if rate is None:
        yield Figure(name, 0, "B/s", "least R with 1 - T(∞)/T(R) ≤ x", "", _SOURCE, "no call that anything waits for leaves a node", main=True)
    else:
        yield Figure(name, rate, "B/s", "least R with 1 - T(∞)/T(R) ≤ x", f"T(∞) = {format_seconds(timed.step(nic_rate=ENDLESS).step_seconds)}",
                     _SOURCE, f"{sensitivity(timed, rate)}{_demanded(timed, rate)}; the time line computes for "
                     f"{format_seconds(timed.step().compute_seconds)}: bounds for another time of computing do not hold", main=True)  # fmt: skip
        nics, gpus = facts.nics_per_node, facts.gpus_per_node
        yield Figure(f"the same per GPU, for {share}", rate * nics / gpus, "B/s", "R · NICs / GPUs of a node",
                     f"{format_rate(rate)}·{nics}/{gpus}", _SOURCE)  # fmt: skip
        yield Figure(f"the same per node, for {share}", rate * nics, "B/s", "R · NICs of a node", f"{format_rate(rate)}·{nics}", _SOURCE, main=True)
        unit = min(facts.nodes_per_unit, facts.nodes)
        below = nics * unit // facts.rails
        yield Figure(
            f"the same per {'rail' if facts.rails > 1 else 'leaf'}, for {share}", rate * below, "B/s", "R · NICs below a leaf",
            f"{format_rate(rate)}·{below}", _SOURCE, f"{unit} nodes share their leaves, {facts.rails} a unit",
        )  # fmt: skip
    inside = timed.least_rate(x, "domain_rate")
    if inside is not None:
        yield Figure(f"links inside a node for {share} of the step", inside, "B/s", "least rate with 1 - T(∞)/T(rate) ≤ x", "", _SOURCE,
                     f"per GPU and direction; it has {format_quantity(facts.domain_rate, 'B/s')}", main=True)  # fmt: skip
    late = timed.most_latency(x)
    if late is not None:
        yield Figure(f"latency of a link that costs {share} of the step", late, "s", "most L with 1 - T(0)/T(L) ≤ x", "", _SOURCE,
                     f"links of the network have {format_seconds(facts.link_latency)}", main=True)  # fmt: skip


def sensitivity(timed: Timed, rate: float) -> str:
    """Return in words what the step does at half and at twice a rate."""
    base = timed.step(nic_rate=rate).step_seconds
    half, twice = (timed.step(nic_rate=rate * k).step_seconds / base - 1 for k in (0.5, 2.0))
    return f"at half of it the step is {half:.1%} longer, at twice {-twice:.1%} shorter"


def _demanded(timed: Timed, rate: float) -> str:
    who = timed.demands(rate)
    named = {**PARALLELISMS, "gradients": "data parallelism (gradients)", "weights": "data parallelism (weights)", "small": "what ends the step (tied embedding, norms)"}
    return f"; {named.get(who, who)} demands it" if who else ""


def _wire_figures(timed: Timed) -> Iterator[Figure]:
    facts = timed.facts
    found = signatures(timed.step(), timed.plan, timed.rows, facts, accelerator_of(facts))
    busiest = max(found, key=lambda one: one.bytes)
    if not busiest.bytes:
        return
    said = busiest.facts()
    largest = said["largest_burst_bytes"]
    yield Figure("longest burst of a NIC at line rate", largest / facts.nic_rate, "s", "max over calls of bytes / R",
                 f"{format_bytes(largest)}/{format_rate(facts.nic_rate)}", "tokenwire.timeline.on_wire",
                 f"stage {busiest.stage}; calls last up to {format_seconds(said['longest_burst_seconds'])}, with latency and pauses; "
                 f"the NIC is busy {said['duty_cycle']:.1%} of the step")  # fmt: skip
    yield from _incast(busiest, facts.nic_rate, facts.link_latency)
    pairs = said["queue_pairs"] * facts.queue_pairs
    yield Figure("queue pairs of a NIC, at least", pairs, "1", "Σ groups peers · queue pairs per connection",
                 f"{said['queue_pairs']}·{facts.queue_pairs}", "tokenwire.timeline.on_wire",
                 f"stage {busiest.stage}; a lower bound: NCCL opens a connection per channel and direction, and those of setup stay open")  # fmt: skip


def _incast(seen: Signature, rate: float, latency: float) -> Iterator[Figure]:
    worst: Burst = max(seen.bursts, key=lambda one: (one.incast - 1) * one.message)
    k = worst.incast
    if k < 2:
        yield Figure("buffer for the worst incast", 0, "B", "(k-1)·m", f"({k}-1)·m", "tokenwire.needs.by_time",
                     "each NIC is sent to by one other at a time: rings and sends")  # fmt: skip
        return
    yield Figure("buffer for the worst incast", (k - 1) * worst.message, "B", "(k-1)·m", f"({k}-1)·{format_bytes(worst.message)}",
                 "tokenwire.needs.by_time", f"{worst.op} on {worst.group}: {k} NICs send {format_bytes(worst.message)} to one at once, which "
                 "takes in one of them meanwhile")  # fmt: skip
    trip = 4 * latency
    yield Figure("the same where senders stop within a round trip", (k - 1) * rate * trip, "B", "(k-1)·R·4L",
                 f"({k}-1)·{format_rate(rate)}·{format_seconds(trip)}", "tokenwire.needs.by_time", "pause frames or credits, two links each way")  # fmt: skip
