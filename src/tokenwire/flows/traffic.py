"""The traffic of one training step: between GPUs, by class of ranks, by tier, on every link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.collectives.nccl.protocols import links_bytes, protocol_named
from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, Fabric
from tokenwire.fabric.fabric import Ints
from tokenwire.flows.loads import link_bytes
from tokenwire.flows.patterns import Pairs, Pattern, patterns
from tokenwire.step.operation import PHASES

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.plan import Plan


@dataclass(frozen=True)
class Traffic:
    """Bytes of one step. Each table is worked out when it is first asked for.

    ``kinds`` are the patterns that the tables come from; ``seed`` chooses among equal ways; ``pxn`` as in ``fabric.routes``.
    ``protocol`` is NCCL's, whose flags count as bytes of the collectives (Simple has none; sends are Simple).
    Rank r is GPU ``place[r]`` (r, where there is no place). ``said`` are the step's calls that send: stage, op, group, phase,
    parallelism, bytes of the full tensor, size of the group.
    """

    kinds: tuple[Pattern, ...]
    plan: Plan
    fabric: Fabric
    seed: int = 0
    pxn: bool = True
    algorithms: Mapping[str, str] = field(default_factory=dict)
    place: Ints | None = None
    protocol: str = "Simple"
    said: tuple[tuple[int, str, str, str, str, int, int], ...] = ()

    def gpus(self, ranks: Ints) -> Ints:
        """Return the GPUs of ranks."""
        return ranks if self.place is None else self.place[ranks]

    @cached_property
    def transfers(self) -> pl.DataFrame:
        """Return who sends what to whom: src, dst (GPUs), bytes, op, group, parallelism, phase; a row a pair and kind."""
        import polars as pl

        schema = {"src": pl.Int64, "dst": pl.Int64, "bytes": pl.Int64,
                  **dict.fromkeys(("op", "group", "parallelism", "phase"), pl.String)}  # fmt: skip
        parts = [
            pl.DataFrame({"src": kind.pairs.src, "dst": kind.pairs.dst, "bytes": kind.bytes})
            .filter(pl.col("bytes") > 0)
            .with_columns(pl.lit(getattr(kind, name)).alias(name) for name in ("op", "group", "parallelism", "phase"))
            for kind in self.kinds
        ]
        return pl.concat(parts) if parts else pl.DataFrame(schema=schema)

    @cached_property
    def per_rank(self) -> pl.DataFrame:
        """Return what a rank of each class sends: rank_class, ranks, op, group, sent_bytes, total_bytes.

        A class is a pipeline stage, ``ranks`` how many of its ranks take part. ``sent_bytes`` is of the rank that sends
        most (they differ where a group does not divide a tensor, and in a broadcast), ``total_bytes`` of all of them.
        """
        import polars as pl

        per_stage = self.plan.world // self.plan.pp
        sent: dict[tuple[int, str, str], Ints] = {}
        takes_part: dict[tuple[int, str, str], Ints] = {}
        for kind in self.kinds:
            key = (kind.stage, kind.op, kind.group)
            first = kind.stage * per_stage
            own = np.zeros(per_stage, dtype=np.int64)
            np.add.at(own, kind.pairs.src - first, kind.bytes)
            sent[key] = sent.get(key, np.zeros(per_stage, dtype=np.int64)) + own
            here = takes_part.setdefault(key, np.zeros(per_stage, dtype=np.int64))
            for end in (kind.pairs.src, kind.pairs.dst) if kind.op != "send" else (kind.pairs.src,):
                inside = end[end // per_stage == kind.stage]
                here[inside - first] = 1
        rows = [
            (f"stage {stage}", int(takes_part[stage, op, group].sum()), op, group, int(own.max(initial=0)), int(own.sum()))
            for (stage, op, group), own in sorted(sent.items(), key=lambda item: item[0][0])
        ]
        schema = {"rank_class": pl.String, "ranks": pl.Int64, "op": pl.String, "group": pl.String,
                  "sent_bytes": pl.Int64, "total_bytes": pl.Int64}  # fmt: skip
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def per_parallelism(self) -> pl.DataFrame:
        """Return who asks for how much: a row a pipeline stage and parallelism.

        ``sent_bytes`` and ``received_bytes`` are of the rank of that stage that sends, or receives, most; ``total_bytes`` is
        sent by all ranks of the stage, ``network_bytes`` the part of it that leaves a node; and the total for each token
        and each sample (sequence) of the step.
        """
        import polars as pl

        g, per_stage, training = self.fabric.gpus_per_node, self.plan.world // self.plan.pp, self.plan.training
        world = self.plan.world
        sent: dict[str, Ints] = {}
        received: dict[str, Ints] = {}
        network: dict[str, Ints] = {}
        for kind in self.kinds:
            for sums in (sent, received, network):
                sums.setdefault(kind.parallelism, np.zeros(world, dtype=np.int64))
            src, dst, size = kind.pairs.src, kind.pairs.dst, kind.bytes
            np.add.at(sent[kind.parallelism], src, size)
            np.add.at(received[kind.parallelism], dst, size)
            np.add.at(network[kind.parallelism], src, np.where(src // g == dst // g, 0, size))
        rows = []
        for stage in range(self.plan.pp):
            ranks = slice(stage * per_stage, (stage + 1) * per_stage)
            for name in sent:
                total = int(sent[name][ranks].sum())
                if not total and not received[name][ranks].any():
                    continue
                rows.append((
                    f"stage {stage}", name, int(sent[name][ranks].max()), int(received[name][ranks].max()), total,
                    int(network[name][ranks].sum()), total / (training.global_batch * training.sequence_length),
                    total / training.global_batch,
                ))  # fmt: skip
        schema = {"rank_class": pl.String, "parallelism": pl.String, "sent_bytes": pl.Int64, "received_bytes": pl.Int64,
                  "total_bytes": pl.Int64, "network_bytes": pl.Int64, "bytes_per_token": pl.Float64,
                  "bytes_per_sample": pl.Float64}  # fmt: skip
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def link_bytes(self) -> Ints:
        """Return the bytes that enter each link of the fabric, int64[links]."""
        out = np.zeros(self.fabric.links, dtype=np.int64)
        for pairs, size in self._together:
            out += link_bytes(
                self.fabric, self.gpus(pairs.src), self.gpus(pairs.dst), size, seed=self.seed, pxn=self.pxn
            )
        return out

    @cached_property
    def links(self) -> pl.DataFrame:
        """Return every link: link, src, dst (device names), tier, bytes a step, rate (bytes/s), seconds = bytes/rate."""
        import polars as pl

        table = self.fabric.table().with_columns(bytes=pl.Series(self.link_bytes, dtype=pl.Int64))
        return table.select(
            "link", "src", "dst", "tier", "bytes", "rate", (pl.col("bytes") / pl.col("rate")).alias("seconds")
        )

    @cached_property
    def per_tier(self) -> pl.DataFrame:
        """Return the load by tier: tier, bytes (entering its links), crossing_bytes, links, busiest, busiest_bytes, mean_bytes.

        ``bytes`` counts a transfer on each of its links; ``crossing_bytes`` once, on its way up.
        """
        import polars as pl

        load, fabric = self.link_bytes, self.fabric
        rows = []
        for code, tier in enumerate(TIERS):
            links = np.flatnonzero(fabric.tier == code)
            if not links.size:
                continue
            own = load[links]
            up = own[fabric.src[links] < fabric.dst[links]] if tier != "torus" else own
            most = links[int(own.argmax())]
            name = f"{fabric.device_name(int(fabric.src[most]))}-{fabric.device_name(int(fabric.dst[most]))}"
            rows.append((tier, int(own.sum()), int(up.sum()), links.size, name if own.max() else "", int(own.max()),
                         float(own.mean())))  # fmt: skip
        schema = {"tier": pl.String, "bytes": pl.Int64, "crossing_bytes": pl.Int64, "links": pl.Int64,
                  "busiest": pl.String, "busiest_bytes": pl.Int64, "mean_bytes": pl.Float64}  # fmt: skip
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def totals(self) -> dict[str, Any]:
        """Return sums over all GPUs in bytes a step: sent, received, over the network, inside nodes; and per token."""
        g = self.fabric.gpus_per_node
        received = np.zeros(self.plan.world, dtype=np.int64)
        sent = inside = 0
        for pairs, size in self._together:
            sent += int(size.sum())
            inside += int(size[pairs.src // g == pairs.dst // g].sum())
            np.add.at(received, pairs.dst, size)
        training = self.plan.training
        tokens = training.global_batch * training.sequence_length
        return {
            "sent_bytes": sent, "received_bytes": int(received.sum()), "network_bytes": sent - inside,
            "nvlink_bytes": inside, "link_bytes": int(self.link_bytes.sum()), "gpus": self.plan.world, "tokens": tokens,
            "sent_bytes_per_gpu": sent / self.plan.world, "sent_bytes_per_token": sent / tokens,
            "network_bytes_per_token": (sent - inside) / tokens,
        }  # fmt: skip

    @cached_property
    def _together(self) -> list[tuple[Pairs, Ints]]:
        # Kinds between the same pairs go the same ways, so their bytes are added before the routes are found.
        weights: dict[int, tuple[Pairs, Ints]] = {}
        for kind in self.kinds:
            pairs, before = weights.get(id(kind.pairs), (kind.pairs, np.zeros_like(kind.weights)))
            weights[id(kind.pairs)] = (pairs, before + kind.weights)
        return [(pairs, weight[pairs.edge]) for pairs, weight in weights.values()]


def traffic(
    operations: pl.DataFrame, plan: Plan, fabric: Fabric, *, algorithms: Mapping[str, str] | None = None, seed: int = 0,
    pxn: bool = True, place: Ints | None = None, protocol: str = "Simple",
) -> Traffic:  # fmt: skip
    """Return the traffic of one step of ``plan`` on ``fabric``; ``operations`` is the step table (``tokenwire.step``).

    ``algorithms`` maps an operation to its algorithm (ring, and pairwise for all_to_all, where it does not). ``place`` has the
    GPU of each rank, where that is not its number. ``protocol`` is how collectives go over every link: LL doubles their bytes. Raises ``InputError`` for a fabric with fewer GPUs than the plan has ranks.
    """
    if plan.world > fabric.world:
        raise InputError(f"a plan of {plan.world:,} ranks", rule=f"the cluster has {fabric.world:,} GPUs",
                         nearest=f"cluster.gpus = {plan.world}")  # fmt: skip
    chosen = dict(algorithms or {})
    columns = ("stage", "op", "group", "phase", "parallelism", "bytes", "group_size")
    said = tuple(
        row for row in operations.select(columns).iter_rows()
        if row[3] != "setup" and row[1] not in ("send", "recv", "barrier") and row[6] > 1
    )  # fmt: skip
    # In the order of a step, whichever stage says a kind first.
    order: tuple[str, ...] = PHASES
    kinds = sorted(patterns(operations, plan, chosen), key=lambda kind: order.index(kind.phase))
    named = protocol_named(protocol)
    carried = tuple(kind if kind.op == "send" else replace(kind, weights=links_bytes(named, kind.weights)) for kind in kinds)
    return Traffic(carried, plan, fabric, seed, pxn, chosen, place, named, said)
