"""A step as bytes between GPUs and on links: by hand, conserved, and the same however it is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, build, routes
from tokenwire.flows import Traffic, traffic
from tokenwire.journey import Journey
from tokenwire.plan import Plan, TrainingConfig
from tokenwire.plan.grid import Grid
from tokenwire.step import COLUMNS, Operation
from tokenwire.step.operation import frame

TP, DP, PP = 4, 3, 2


def plan(tp: int = TP, dp: int = DP, pp: int = PP) -> Plan:
    grid = Grid((("tp", tp), ("dp", dp), ("pp", pp)))
    none = SimpleNamespace()
    return Plan(none, TrainingConfig(), tp * dp * pp, tp, pp, 1, dp, 1, 1, dp, 1, 1, grid, grid, (), 8)  # type: ignore[arg-type]


def said(*rows: Operation) -> pl.DataFrame:
    return frame(rows)


def of(operations: pl.DataFrame, chosen: Plan, **options: object) -> Traffic:
    nodes = -(-chosen.world // 8)
    return traffic(operations, chosen, build(ClusterConfig(nodes=nodes)), **options)  # type: ignore[arg-type]


def call(stage: int, op: str, group: str, n: int, elements: int, count: int = 1, peer: int | None = None) -> Operation:
    return Operation(stage, op, group, n, "forward", count, elements, "uint8", "tp", "test", peer=peer)  # type: ignore[arg-type]


def test_by_hand() -> None:
    # tp 4, dp 3, pp 2 on 24 GPUs in 3 nodes. Ring of 4 over 400 B, twice: 2·2·3/4·400 = 1,200 B a rank to its neighbour.
    found = of(said(call(0, "all_reduce", "tp", 4, 400, count=2)), plan())
    table = found.transfers
    assert set(table["bytes"]) == {1200}
    assert set(table.select("src", "dst").iter_rows()) == {
        (4 * g + i, 4 * g + (i + 1) % 4) for g in range(3) for i in range(4)
    }  # fmt: skip
    assert found.per_rank.to_dicts() == [
        {"rank_class": "stage 0", "ranks": 12, "op": "all_reduce", "group": "tp", "sent_bytes": 1200, "total_bytes": 14400}
    ]
    # Four ranks from rank 0, 4, 8 share a node of 8 each: all of it over NVLink, on two links.
    totals = found.totals
    assert (totals["sent_bytes"], totals["nvlink_bytes"], totals["network_bytes"]) == (14400, 14400, 0)
    tiers = {row["tier"]: row for row in found.per_tier.iter_rows(named=True)}
    assert (tiers["nvlink"]["bytes"], tiers["nvlink"]["crossing_bytes"]) == (28800, 14400)


def test_send_goes_to_the_peer_stage_and_receives_add_nothing() -> None:
    rows = [call(0, "send", "pp", 2, 100, 5, peer=1), call(1, "recv", "pp", 2, 100, 5, peer=0)]
    table = of(said(*rows), plan()).transfers
    assert sorted(table.select("src", "dst", "bytes").iter_rows()) == [(r, r + 12, 500) for r in range(12)]


def test_send_inside_a_group_goes_round() -> None:
    # Ring attention: each member to the next.
    table = of(said(call(0, "send", "dp", 3, 10)), plan()).transfers
    assert (0, 4, 10) in set(table.select("src", "dst", "bytes").iter_rows())
    assert (8, 0, 10) in set(table.select("src", "dst", "bytes").iter_rows())


def test_a_group_over_stages_counts_once() -> None:
    # Both stages say that they all_reduce over the world: 24 ranks, 2·23/24·240 = 460 B each, not twice.
    found = of(said(*[call(stage, "all_reduce", "world", 24, 240) for stage in (0, 1)]), plan())
    assert found.totals["sent_bytes"] == 24 * 460
    assert [row["ranks"] for row in found.per_rank.to_dicts()] == [12, 12]


def test_tied_embeddings_join_the_ends_only() -> None:
    chosen = plan(tp=2, dp=1, pp=4)
    found = of(said(*[call(stage, "all_reduce", "embedding", 2, 100) for stage in (0, 3)]), chosen)
    assert set(found.transfers.select("src", "dst").iter_rows()) == {(0, 6), (6, 0), (1, 7), (7, 1)}


def test_what_is_no_part_of_a_step() -> None:
    setup = Operation(0, "broadcast", "dp", 3, "setup", 1, 100, "uint8", "dp", "weights")
    found = of(said(setup, call(0, "barrier", "dp", 3, 0)), plan())
    assert found.totals["sent_bytes"] == 0
    assert found.transfers.height == 0
    assert found.transfers.columns == ["src", "dst", "bytes", "op", "group", "parallelism", "phase"]
    assert found.per_rank.height == 0


OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
rows = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(OPS), st.sampled_from(("tp", "dp", "tp_dp", "mp", "world")),
              st.integers(0, 5000), st.integers(1, 3)),
    min_size=1, max_size=8,
)  # fmt: skip


@given(rows, st.integers(0, 99), st.booleans())
@settings(max_examples=40)
def test_bytes_are_conserved(kinds: list[tuple[int, str, str, int, int]], seed: int, pxn: bool) -> None:
    chosen = plan()
    told: Iterable[Operation] = [
        call(stage, op, group, chosen.group_size(group), S, count) for _, op, group, S, count in kinds for stage in (0, 1)
    ]
    found = of(said(*told), chosen, seed=seed, pxn=pxn)
    table, totals = found.transfers, found.totals
    sent = int(table["bytes"].sum())
    assert sent == totals["sent_bytes"] == totals["received_bytes"] == totals["nvlink_bytes"] + totals["network_bytes"]
    assert sent == found.per_rank["total_bytes"].sum()
    # Over links: bytes times hops.
    offsets, _ = routes(found.fabric, table["src"].to_numpy(), table["dst"].to_numpy(), seed, pxn)
    assert int((table["bytes"].to_numpy() * np.diff(offsets)).sum()) == totals["link_bytes"]
    assert found.links["bytes"].sum() == totals["link_bytes"] == found.per_tier["bytes"].sum()
    # What leaves the nodes goes up to a leaf once.
    tiers = {row["tier"]: row["crossing_bytes"] for row in found.per_tier.iter_rows(named=True)}
    assert tiers["leaf"] == totals["network_bytes"]


def test_links_beyond_float_precision_are_exact() -> None:
    # 3 · (2^57 + 1) B is no float64.
    from tokenwire.flows import link_bytes

    fabric = build(ClusterConfig(nodes=2))
    size = np.full(3, 2**57 + 1)
    load = link_bytes(fabric, np.zeros(3, dtype=np.int64), np.full(3, 8), size)
    assert load.max() == 3 * (2**57 + 1)


def test_another_algorithm_moves_the_same_bytes_in_all() -> None:
    table = said(call(0, "all_reduce", "dp", 3, 999), call(1, "all_reduce", "dp", 3, 999))
    ring, tree = of(table, plan()), of(table, plan(), algorithms={"all_reduce": "tree"})
    assert ring.totals["sent_bytes"] == tree.totals["sent_bytes"] == 2 * 4 * 2 * 2 * 999  # 8 groups, 2(n-1)·S


def test_a_plan_larger_than_the_cluster() -> None:
    with pytest.raises(InputError, match="24 ranks"):
        traffic(said(call(0, "all_reduce", "tp", 4, 8)), plan(), build(ClusterConfig(nodes=2)))


def test_columns_are_the_steps() -> None:
    assert {"stage", "op", "group", "phase", "parallelism", "group_size", "peer", "bytes", "count"} <= set(COLUMNS)


def test_the_built_in_walk() -> None:
    found = Journey.read(None).traffic()
    totals = found.totals
    assert totals["sent_bytes"] == totals["received_bytes"] > 0
    # Tensor parallelism of 2 stays inside nodes of 4.
    table = found.transfers.filter(pl.col("group") == "tp")
    assert ((table["src"] // 4) == (table["dst"] // 4)).all()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tokenwire", *arguments], capture_output=True, text=True, check=False)


def test_the_verb_says_the_same() -> None:
    facts = json.loads(command("traffic", "--json").stdout)
    totals = Journey.read(None).traffic().totals
    assert facts["totals"] == totals
    assert {"rank_class", "ranks", "op", "group", "sent_bytes"} <= set(facts["per_rank"][0])
    assert {"tier", "bytes"} <= set(facts["per_tier"][0])
    lines = command("traffic", "--links", "--csv", "-").stdout.splitlines()
    assert lines[0] == "link,src,dst,tier,bytes,rate,seconds"
    assert sum(int(line.split(",")[4]) for line in lines[1:]) == totals["link_bytes"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--links", "--transfers"], "ask for one"), (["--algorithm", "tree"], "OPERATION=ALGORITHM"), (["--top", "0"], "--top"),
     (["--algorithm", "all_reduce=nvls"], "switches"), (["--algorithm", "all_reduce=rign"], "ring"), (["no.toml"], "no such file")],
)  # fmt: skip
def test_the_verb_on_wrong_input(arguments: list[str], word: str) -> None:
    ended = command("traffic", *arguments)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert word in ended.stderr


def test_by_parallelism_sums_to_the_totals() -> None:
    from tokenwire.journey import Journey

    traffic = Journey.read(None).traffic()
    table, totals = traffic.per_parallelism, traffic.totals
    assert int(table["total_bytes"].sum()) == totals["sent_bytes"]
    assert int(table["network_bytes"].sum()) == totals["network_bytes"]
    assert float(table["bytes_per_token"].sum()) == pytest.approx(totals["sent_bytes_per_token"])
    # A sample is a sequence of 256 tokens.
    assert (table["bytes_per_sample"] / table["bytes_per_token"]).to_list() == pytest.approx([256.0] * table.height)
    # The forward sends of stage 0 and the gradients that it gets back are as large: m·b·s·h/t·2 = 4·131,072 B; and the tied
    # embedding's gradient, 504 rows of 256 in fp32, is all-reduced between 2: as much comes as goes.
    first = table.filter((table["rank_class"] == "stage 0") & (table["parallelism"] == "pp")).row(0, named=True)
    assert first["sent_bytes"] == first["received_bytes"] == 4 * 131_072 + 504 * 256 * 4


def test_flags_of_a_protocol_count_on_the_links() -> None:
    # The ring's 1,200 B a rank: LL writes 8 B for each 4, LL128 128 for each 120 B: 2,400 and 1,280. A send is Simple.
    rows = said(call(0, "all_reduce", "tp", 4, 400, count=2), call(0, "send", "pp", 2, 500, peer=1))
    for protocol, size in (("Simple", 1200), ("LL128", 1280), ("ll", 2400)):
        found = of(rows, plan(), protocol=protocol)
        assert {row["op"]: row["bytes"] for row in found.transfers.iter_rows(named=True)} == {"all_reduce": size, "send": 500}
        assert found.totals["sent_bytes"] == 12 * (size + 500)
    with pytest.raises(InputError, match="known are LL, LL128, Simple"):
        of(rows, plan(), protocol="LL64")
