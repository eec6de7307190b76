"""all_to_allv: any matrix, carried out on data; its time against hand and bound; the verb and its files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives.test_cost import command
from tokenwire.collectives import cost, edges, transfers
from tokenwire.collectives.exchange import EXCHANGES, even, placed
from tokenwire.collectives.matrix import LARGEST_FILE, read_matrix
from tokenwire.collectives.running import run_uneven
from tokenwire.collectives.tables import Ints
from tokenwire.collectives.topology import TOPOLOGIES
from tokenwire.collectives.uneven import cost_of, edges_of, extremes, transfers_of
from tokenwire.errors import InputError

NAMES = list(EXCHANGES)


def some_matrix(n: int, seed: int, most: int = 40) -> Ints:
    random = np.random.default_rng(seed)
    matrix = random.integers(0, most + 1, (n, n))
    matrix[random.random((n, n)) < 0.3] = 0
    return matrix


def proved(name: str, matrix: Ints) -> None:
    random = np.random.default_rng(matrix.shape[0])
    inputs = [random.integers(1, 10**6, int(size)) for size in matrix.sum(axis=1)]
    offset, _ = placed(matrix)
    out = run_uneven(name, matrix, inputs)
    for j in range(matrix.shape[0]):
        wanted = [inputs[i][offset[i, j] : offset[i, j] + matrix[i, j]] for i in range(matrix.shape[0])]
        np.testing.assert_array_equal(out[j], np.concatenate(wanted))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 24])
def test_right_result_on_every_rank(name: str, n: int) -> None:
    for seed in range(3):
        proved(name, some_matrix(n, seed))
    proved(name, np.zeros((n, n), dtype=np.int64))
    only = np.zeros((n, n), dtype=np.int64)
    only[0] = 7  # one rank gives to all, the others nothing
    proved(name, only)
    proved(name, only.T.copy())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_ranks(name: str) -> None:
    proved(name, some_matrix(1000, 7, 3))


@pytest.mark.parametrize("name", NAMES)
@given(n=st.integers(1, 32), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_edges_are_the_sum_of_the_transfers(name: str, n: int, seed: int) -> None:
    matrix = some_matrix(n, seed)
    table = transfers_of(name, matrix)
    summed: Counter[tuple[int, int]] = Counter()
    for src, dst, size in zip(table["src"].tolist(), table["dst"].tolist(), table["bytes"].tolist(), strict=True):
        assert src != dst
        summed[src, dst] += size
    found = edges_of(name, matrix)
    assert len(set(zip(found.src.tolist(), found.dst.tolist(), strict=True))) == found.src.size
    assert summed == Counter({(int(s), int(d)): int(b) for s, d, b in zip(*found, strict=True) if b})
    if name != "pxn":
        assert sum(summed.values()) == matrix.sum() - matrix.trace()


@pytest.mark.parametrize("name", NAMES)
@given(n=st.integers(1, 24), S=st.integers(0, 500), topology=st.sampled_from(TOPOLOGIES))
@settings(max_examples=15)
def test_alike_pieces_are_all_to_all(name: str, n: int, S: int, topology: str) -> None:
    matrix = even(n, S * n)
    np.testing.assert_array_equal(transfers_of(name, matrix), transfers("all_to_all", name, n, S * n))
    assert [one.tolist() for one in edges_of(name, matrix)][2] == edges("all_to_all", name, n, S * n).bytes.tolist()[: n * n]
    if S:
        one, other = (
            cost_of(name, matrix, rate=1e6, latency=1e-6, topology=topology),
            cost("all_to_all", name, n, S * n, rate=1e6, latency=1e-6, topology=topology),
        )
        assert (one.sent_bytes, one.steps, one.size_bytes) == (other.sent_bytes, other.steps, other.size_bytes)
        for figure in ("seconds", "bound_seconds", "busbw"):
            assert getattr(one, figure) == pytest.approx(getattr(other, figure), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@given(n=st.integers(1, 24), seed=st.integers(0, 99), topology=st.sampled_from(TOPOLOGIES), chunks=st.integers(1, 4))
@settings(max_examples=20)
def test_never_below_the_bound(name: str, n: int, seed: int, topology: str, chunks: int) -> None:
    matrix = some_matrix(n, seed)
    found = cost_of(name, matrix, rate=1e3, latency=1e-3, chunks=chunks, topology=topology)
    assert found.seconds >= found.bound_seconds * (1 - 1e-9)
    # Twice the bytes on twice the rate: the same time.
    twice = cost_of(name, 2 * matrix, rate=2e3, latency=1e-3, chunks=chunks, topology=topology)
    assert twice.seconds == pytest.approx(found.seconds, rel=1e-9)


def test_by_hand() -> None:
    # Everyone to rank 0: in any order its link down takes 3·100 B at 100 B/s. Mean received 75 B, so 4 times the mean.
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[:, 0] = 100
    for name in ("pairwise", "linear"):
        found = cost_of(name, matrix, rate=100.0)
        assert found.seconds == found.bound_seconds == 3
        assert found.busbw == 25  # 300 B by 4 ranks in 3 s
    sends, takes = extremes(matrix)
    assert (sends.bytes, takes) == (100, type(takes)(0, 300, 4.0))
    # A ring of 4: from 1 and 3 over links of their own, and what 2 sends goes with one of theirs: 200 B.
    assert cost_of("linear", matrix, rate=100.0, topology="ring").seconds == 2


def test_relays_by_hand() -> None:
    # 16 ranks in 2 nodes. 0 sends 5 B to 9: to 1 on 9's rail, who sends them on from behind its empty tensor.
    matrix = np.zeros((16, 16), dtype=np.int64)
    matrix[0, 9] = 5
    columns = ["step", "src", "dst", "offset", "bytes", "chunk", "to"]
    assert transfers_of("pxn", matrix)[columns].tolist() == [(0, 0, 1, 0, 5, 9, 0), (1, 1, 9, 0, 5, 9, 0)]
    # All alike, 1 B a pair: to each of 7 peers 2 B inside, to one rank 8 B along the rail; never across rails between nodes.
    e = edges("all_to_all", "pxn", 16, 16)
    inside = e.src // 8 == e.dst // 8
    assert set(e.bytes[inside].tolist()) == {2}
    assert set(e.bytes[~inside].tolist()) == {8}
    assert (e.src % 8 == e.dst % 8)[~inside].all()


GOOD = "0,100,0,7\n1000000,0,3,0\n0,0,50,0\n2000000,5,5,0\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"), ("0,1\n1,0\n1,1\n", "square"), ("0,1,2\n1,0,2\n", "square"), ("0,-1\n1,0\n", "'-1' in line 1, column 2"),
        ("0,1.5\n1,0\n", "1.5"), ("0,nan\n1,0\n", "nan"), ("0,inf\n1,0\n", "inf"), ("0,1e3\n1,0\n", "1e3"), ("a,b\n0,1\n", "'a'"),
        ("0,\n1,0\n", "column 2"), (f"0,{1 << 61}\n1,0\n", "2^60"), (f"0,{1 << 60}\n{1 << 60},0\n", "2^60"), ("0;1\n1;0\n", "square"),
        ("0,9" + "9" * 5000 + "\n1,0\n", "2^60"),
    ],
)  # fmt: skip
def test_wrong_files(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "m.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_matrix(str(file))
    assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


def test_more_wrong_files(tmp_path: Path) -> None:
    file = tmp_path / "m.csv"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        read_matrix(str(file))
    with file.open("wb") as large:
        large.truncate(LARGEST_FILE + 1)
    with pytest.raises(InputError, match="larger than the limit"):
        read_matrix(str(file))
    file.write_text(GOOD)
    with pytest.raises(InputError, match="has 4 lines; nearest that works: --ranks 4"):
        read_matrix(str(file), 5)
    with pytest.raises(InputError, match="no such file"):
        read_matrix(str(tmp_path / "none.csv"))


def test_the_verb(tmp_path: Path) -> None:
    file = tmp_path / "m.csv"
    file.write_text(GOOD)
    facts = json.loads(command("collective", "all_to_allv", "--ranks", "4", "--matrix", str(file), "--json").stdout)
    assert facts["total_bytes"] == 3_000_120
    assert facts["most_sent"]["rank"] == 3
    # Of 3,000,000 B at 50 GB/s and one latency of 500 ns.
    assert facts["most_received"] == {"rank": 0, "bytes": 3_000_000, "imbalance": pytest.approx(4 * 3_000_000 / 3_000_120)}
    assert facts["bound_seconds"] == pytest.approx(60.5e-6)
    even_facts = json.loads(command("collective", "all_to_all", "--ranks", "4", "--json").stdout)
    assert list(facts)[: len(even_facts)] == list(even_facts)
    written = command("collective", "all_to_allv", "--matrix", str(file), "--csv", "-").stdout.splitlines()
    assert written[0] == "step,src,dst,offset,bytes,chunk,to,adds"
    assert len(written) == 1 + 7
