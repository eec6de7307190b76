"""Every algorithm, carried out on data: the right result on every rank, the right bytes on every edge."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.collectives import OPERATIONS, algorithm, algorithms, edges, run, sent_bytes, transfers
from tokenwire.collectives.tables import starts

KINDS = [(op, name) for op in OPERATIONS for name in algorithms(op)]
MOVING = [kind for kind in KINDS if kind[0] not in ("recv", "barrier")]


def wanted(op: str, inputs: np.ndarray, i: int) -> np.ndarray:
    n, S = inputs.shape
    at = starts(S, n)
    if op == "all_to_allv":  # with pieces that are alike; matrices are in test_uneven
        op = "all_to_all"
    return {
        "all_reduce": lambda: inputs.sum(0),
        "reduce_scatter": lambda: inputs.sum(0)[at[i] : at[i + 1]],
        "all_gather": lambda: np.concatenate([inputs[j, at[j] : at[j + 1]] for j in range(n)]),
        "broadcast": lambda: inputs[0],
        "reduce": lambda: inputs.sum(0) if i == 0 else inputs[0, :0],
        "all_to_all": lambda: np.concatenate([inputs[j, at[i] : at[i + 1]] for j in range(n)]),
        "send": lambda: inputs[0],
    }[op]()  # type: ignore[no-untyped-call]


def proved(op: str, name: str, n: int, S: int) -> None:
    inputs = np.random.default_rng(n * 1000 + S).integers(1, 10**6, (n, S))
    out = run(op, name, inputs)
    for i in range(n):
        np.testing.assert_array_equal(out[i], wanted(op, inputs, i))


def by_pair(columns: object) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for src, dst, size in columns:  # type: ignore[attr-defined]
        if size:
            found[int(src), int(dst)] += int(size)
    return found


@pytest.mark.parametrize(("op", "name"), MOVING)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 24])
@pytest.mark.parametrize("S", [0, 1, 2, 7, 24, 97, 1001])
def test_right_result_on_every_rank(op: str, name: str, n: int, S: int) -> None:
    if op == "send" and n != 2:
        pytest.skip("a send is between two")
    proved(op, name, n, S)


@pytest.mark.parametrize(("op", "name"), KINDS)
@given(n=st.integers(2, 40), S=st.integers(0, 500))
@settings(max_examples=25)
def test_edges_are_the_sum_of_the_transfers(op: str, name: str, n: int, S: int) -> None:
    n = 2 if op in ("send", "recv") else n
    table, found = transfers(op, name, n, S), edges(op, name, n, S)
    pairs = zip(table["src"], table["dst"], table["bytes"], strict=True)
    assert by_pair(pairs) == by_pair(zip(*found, strict=True))
    assert (table["src"] != table["dst"]).all()
    assert sent_bytes(op, name, n, S).sum() == sum(size for (src, _), size in by_pair(zip(*found, strict=True)).items() if src < n)
    if op != "barrier":
        assert (table["bytes"] > 0).all()
    assert len(table) <= algorithm(op, name).count(n)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "name"), [kind for kind in MOVING if kind[0] != "send"])
def test_a_thousand_ranks(op: str, name: str) -> None:
    # 1,001 numbers on 1,000 ranks: one piece has two. Reducing rings write out 2 million transfers.
    proved(op, name, 1000, 1001 if "tree" in name or "binomial" in name else 200)


@pytest.mark.parametrize("n", [2, 3, 8, 24])
def test_ring_volumes_by_hand(n: int) -> None:
    # n divides S = 24·k: all_reduce 2(n-1)/n·S, the others (n-1)/n·S.
    S = 24 * 100
    assert set(sent_bytes("all_reduce", "ring", n, S).tolist()) == {2 * (n - 1) * S // n}
    for op in ("all_gather", "reduce_scatter"):
        assert set(sent_bytes(op, "ring", n, S).tolist()) == {(n - 1) * S // n}
    assert set(sent_bytes("all_to_all", "pairwise", n, S).tolist()) == {(n - 1) * S // n}


def test_ring_all_reduce_of_four_by_hand() -> None:
    # 4 ranks, 4 bytes, a byte a piece. Step 0: rank i sends piece i-1; step 3, the first of the gather: piece i.
    table = transfers("all_reduce", "ring", 4, 4)
    assert table[table["step"] == 0][["src", "dst", "offset", "adds"]].tolist() == [
        (0, 1, 3, True), (1, 2, 0, True), (2, 3, 1, True), (3, 0, 2, True),
    ]  # fmt: skip
    assert table[table["step"] == 3][["src", "dst", "offset", "adds"]].tolist() == [
        (0, 1, 0, False), (1, 2, 1, False), (2, 3, 2, False), (3, 0, 3, False),
    ]  # fmt: skip
    assert table["step"].max() == 5  # 2(n-1) steps


def test_size_smaller_than_the_group() -> None:
    # 3 bytes on 8 ranks: pieces 1 1 1 0 0 0 0 0. Rank 0 keeps its byte back when scattering; 1's (which 0 does not need) when gathering.
    assert edges("reduce_scatter", "ring", 8, 3).bytes.tolist() == [2, 2, 2, 3, 3, 3, 3, 3]
    assert edges("all_gather", "ring", 8, 3).bytes.tolist() == [2, 2, 3, 3, 3, 3, 3, 2]


def test_two_trees_share_the_work() -> None:
    # Whoever is inside one tree is a leaf of the other (n even): nobody sends more than 2·S, all together 2(n-1)·S.
    for n in (2, 4, 8, 24):
        sent = sent_bytes("all_reduce", "tree", n, 1000)
        assert sent.sum() == 2 * (n - 1) * 1000
        assert sent.max() <= 2000


def test_nvls_sends_once() -> None:
    # n = 8: S + S/n up for each member, where a ring sends 2·7/8·S.
    assert set(sent_bytes("all_reduce", "nvls", 8, 800).tolist()) == {900}
    assert set(sent_bytes("all_reduce", "ring", 8, 800).tolist()) == {1400}


def test_hierarchical_keeps_most_bytes_inside() -> None:
    # 16 ranks in 2 domains of 8, 1,600 B: inside 2·7/8·1600 = 2,800 a rank, on its rail 2·1/2·200 = 200.
    e = edges("all_reduce", "hierarchical", 16, 1600)
    inside = e.src // 8 == e.dst // 8
    assert set(e.bytes[inside].tolist()) == {2800}
    assert set(e.bytes[~inside].tolist()) == {200}


def test_nvls_tree_by_hand() -> None:
    # 16 ranks in 2 domains of 8, 1,600 B: S + S/8 = 1,800 to the switch; the heads' trees over 2 domains send 2(N-1)·200 = 400 a piece.
    e = edges("all_reduce", "nvls_tree", 16, 1600)
    assert set(e.dst[e.dst >= 16].tolist()) == {16, 17}
    assert set(e.bytes[e.dst >= 16].tolist()) == {1800}
    between = (e.dst < 16) & (e.src < 16)
    assert (e.src[between] % 8 == e.dst[between] % 8).all()
    assert e.bytes[between].sum() == 8 * 400


def test_nvls_tree_is_nvls_in_one_domain_and_a_tree_without() -> None:
    assert by_pair(zip(*edges("all_reduce", "nvls_tree", 8, 801), strict=True)) == by_pair(
        zip(*edges("all_reduce", "nvls", 8, 801), strict=True)
    )
    assert by_pair(zip(*edges("all_reduce", "nvls_tree", 5, 801), strict=True)) == by_pair(
        zip(*edges("all_reduce", "tree", 5, 801), strict=True)
    )


@pytest.mark.parametrize("nodes", [2, 5, 32])
def test_sharp_sends_once_whatever_the_nodes(nodes: int) -> None:
    # A head sends S/g = 200 up and takes 200; inside 7 others get 200 before and 200 after: 2,800.
    n = 8 * nodes
    e = edges("all_reduce", "collnet_direct", n, 1600)
    assert set(e.bytes[e.dst >= n].tolist()) == set(e.bytes[e.src >= n].tolist()) == {200}
    assert np.unique(e.dst[e.dst >= n]).size == 8  # one switch a rail
    assert set((sent_bytes("all_reduce", "collnet_direct", n, 1600)).tolist()) == {200 + 2800}
    assert set(sent_bytes("all_reduce", "collnet_chain", n, 1600).tolist()) == {200 + 2800}


def test_sharp_climbs_a_tree_of_switches() -> None:
    # 40 nodes of one: two leaves of 32 and 8 and a root. The root hears 2·S, every leaf once from each of its own.
    e = edges("all_reduce", "collnet_direct", 8 * 40, 800)
    up = (e.dst >= 320) & (e.src < e.dst)  # switches are numbered from the leaves up
    heard = dict(zip(*np.unique(e.dst[up], return_counts=True), strict=True))
    assert sorted(set(heard.values())) == [2, 8, 32]
    assert len(heard) == 8 * 3
    assert set(e.bytes[up].tolist()) == {100}


def test_sharp_scatters_less_down_than_up() -> None:
    # 16 ranks, 1,600 B: a head sends its part of 200 up and takes its own piece of 100; all_gather the reverse.
    for op, up, down in (("reduce_scatter", 200, 100), ("all_gather", 100, 200)):
        e = edges(op, "collnet_direct", 16, 1600)
        assert set(e.bytes[e.dst >= 16].tolist()) == {up}
        assert set(e.bytes[e.src >= 16].tolist()) == {down}


def test_pat_of_five_by_hand() -> None:
    # Distances 4, 2, 1. Root 0's tree: 0>4; 0>2; 0>1, 2>3 (4 has no 5). So each sends 1, 1 and 2 pieces.
    table = transfers("all_gather", "pat", 5, 5)
    assert table[table["chunk"] == 0][["step", "src", "dst"]].tolist() == [(0, 0, 4), (1, 0, 2), (2, 0, 1), (2, 2, 3)]
    e = edges("all_gather", "pat", 5, 5)
    assert {(e.dst[k] - e.src[k]) % 5: int(e.bytes[k]) for k in range(15)} == {4: 1, 2: 1, 1: 2}


@pytest.mark.parametrize("n", [2, 8, 24, 1000])
def test_pat_sends_what_a_ring_sends_in_log_steps(n: int) -> None:
    S = 3 * n
    assert set(sent_bytes("all_gather", "pat", n, S).tolist()) == {3 * (n - 1)}
    assert transfers("all_gather", "pat", n, S)["step"].max() + 1 == (n - 1).bit_length()


@pytest.mark.parametrize(("name", "nccl"), [("nvls_tree", "NVLSTree"), ("collnet_direct", "CollNetDirect"), ("tree", "Tree")])
def test_transfers_cross_what_the_tuner_counts(name: str, nccl: str) -> None:
    # Out of a node, all its NICs together: the closed forms of collectives/nccl/crossing.py. (The plain tree knows no nodes: n = N.)
    from tokenwire.collectives.nccl import Machine, crossings

    g = 1 if name == "tree" else 8
    e = edges("all_reduce", name, 4 * g, 8000)
    node = e.src // g
    outside = (e.src < 4 * g) & ((e.dst // g != node) if name != "collnet_direct" else (e.dst >= 4 * g))
    if name == "nvls_tree":
        outside &= e.dst < 4 * g
    machine = Machine("hopper", nodes=4, ranks_per_node=g, nics_per_node=g)
    assert e.bytes[outside].sum() / 4 == g * crossings(machine, "all_reduce", nccl, "Simple", 8000)[0].data_bytes
