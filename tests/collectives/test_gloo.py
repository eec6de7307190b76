"""Gloo's calls: by hand, by property, and against what was measured over TCP with 4 ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.collectives.gloo import MESSAGE_BYTES, messages, on_connections, segments, sent
from tokenwire.errors import InputError

groups = st.integers(2, 24)
tensors = st.integers(1, 2**28)


def test_ten_all_reduces_as_measured() -> None:
    # 10 calls of 4,000,000 B among 4: 60,000,000 + 120·144 = 60,017,280 predicted; 60,017,328 to 60,023,168 seen.
    total = 10 * sent("all_reduce", 4, 4_000_000).bytes
    assert total == 60_017_280
    assert total == pytest.approx(60_017_328, rel=1e-4)


@pytest.mark.parametrize(
    ("op", "payload"),
    [("reduce_scatter", [24, 24, 24, 24]), ("all_gather", [12, 12, 12, 12]), ("all_to_all", [12, 12, 12, 12]),
     ("broadcast", [32, 16, 0, 0]), ("barrier", [0, 0, 0, 0]), ("gather", [0, 4, 4, 4]), ("scatter", [12, 0, 0, 0])],
)  # fmt: skip
def test_payload_by_rank(op: str, payload: list[int]) -> None:
    # S = 16 of 4 bytes each: all_gather 3·S/4; broadcast 2·S, S, 0, 0. An all_reduce has 8 segments of 4 B (2 rounded up to an
    # element), of which the first 4 have bytes: chunks of 8, 8, 0, 0 B; rank r sends 2·16 less chunks r and r-1: 24, 16, 24, 32.
    expected = [24, 16, 24, 32] if op == "reduce_scatter" else payload
    assert [sent(op, 4, 16, rank).payload for rank in range(4)] == expected


def test_reduce_by_hand() -> None:
    # S = 32, n = 4: 8 segments of 4 B, chunks of 8 B. Each sends 6 of 8 segments round, the others then their chunk to root 0.
    assert [tuple(row) for row in messages("reduce", 4, 32).tolist()] == [
        (0, 3, 24, 6), (1, 0, 32, 7), (2, 0, 8, 1), (2, 1, 24, 6), (3, 0, 8, 1), (3, 2, 24, 6),
    ]  # fmt: skip


def test_reduce_of_many_segments_sends_more_than_a_ring_needs() -> None:
    # 64 MiB, n = 4: segments of 1 MiB, 64 of them; 62 go round from each rank, where a ring needs 48.
    around = messages("reduce", 4, 64 * 2**20)
    assert int(around[(around["src"] == 0)]["messages"].sum()) == 62


def test_segments_by_hand() -> None:
    # 9 MiB + 4 B, n = 4: ceil(9 MiB + 4 / 1 MiB) = 10, up to 12; ceil(9,437,188/12) = 786,433, up to 786,436.
    assert segments(4, 9 * 2**20 + 4) == (12, 786_436)
    assert segments(3, 1, item=1) == (6, 1)


def test_halves_of_a_shard_are_messages_even_when_empty() -> None:
    # 3 ranks with 1 byte each: halves of 0 and 1 B: 4 messages a rank, 2 B of payload.
    assert messages("all_gather", 3, 3).tolist() == [(0, 1, 2, 4), (1, 2, 2, 4), (2, 0, 2, 4)]


def test_barrier_rounds() -> None:
    assert [sent("barrier", n, 0).messages for n in (1, 2, 4, 5, 8)] == [0, 1, 2, 3, 3]


def test_all_to_all_of_unlike_pieces() -> None:
    table = messages("all_to_all", 2, 0, sizes=[[5, 7], [0, 1]])
    assert table.tolist() == [(0, 1, 7, 1), (1, 0, 0, 1)]


def test_empty_tensors_are_not_reduced() -> None:
    assert not any(len(messages(op, 4, 0)) for op in ("all_reduce", "reduce_scatter", "all_gather", "reduce"))


@given(groups, tensors, st.sampled_from([1, 2, 4, 8]))
def test_every_segment_goes_round_twice(n: int, elements: int, item: int) -> None:
    S = elements * item
    table = messages("all_reduce", n, S, item=item)
    assert int(table["payload"].sum()) == 2 * (n - 1) * S  # n chunks, each received by n-1 members, twice
    count, size = segments(n, S, item)
    assert (count - 1) * size < S + count * item * 2
    assert int(table["messages"].sum()) == 2 * (n - 1) * -(-S // size)


@given(groups, st.integers(0, 100), st.data())
def test_broadcast_reaches_everyone_once(n: int, size: int, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, n - 1))
    table = messages("broadcast", n, size, root=root)
    assert sorted(table["dst"].tolist()) == sorted(set(range(n)) - {root})
    assert int(table["payload"].sum()) == size * (n - 1)


@given(groups, tensors, st.data())
def test_reduce_brings_every_chunk_to_the_root(n: int, size: int, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, n - 1))
    table = messages("reduce", n, size, item=1, root=root)
    lengths = table["payload"]
    assert (lengths > 0).all()
    assert int(lengths.sum()) >= (n - 1) * size


@given(st.sampled_from(["all_reduce", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter", "barrier"]),
       groups, st.integers(0, 10**6))  # fmt: skip
def test_bytes_on_connections_are_payload_and_144_a_message(op: str, n: int, shard: int) -> None:
    table = messages(op, n, shard * n)
    whole = sum(on_connections(table).values())
    assert whole == int(table["payload"].sum()) + MESSAGE_BYTES * int(table["messages"].sum())
    assert not np.any(table["src"] == table["dst"])


def test_what_cannot_be() -> None:
    for call in (("allreduce", 4, 4), ("all_reduce", 0, 4), ("all_reduce", 4, -1), ("all_reduce", 4, 4, 4)):
        with pytest.raises(InputError):
            sent(*call)  # type: ignore[arg-type]
    for more in ({"root": 4}, {"item": 0}):
        with pytest.raises(InputError):
            messages("reduce", 4, 4, **more)
    with pytest.raises(InputError, match="nearest that works: 8 B"):
        messages("all_gather", 4, 7)
    with pytest.raises(InputError):
        messages("all_to_all", 2, 4, sizes=[[1]])
    with pytest.raises(InputError):
        messages("all_to_all", 2**20, 2**20)
