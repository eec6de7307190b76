"""Gloo's calls against what was measured over TCP with 4 ranks."""

from __future__ import annotations

import pytest

from tokenwire.collectives.gloo import sent
from tokenwire.errors import InputError


def test_ten_all_reduces_as_measured() -> None:
    # 10 calls of 4,000,000 B among 4: 60,000,000 + 120·144 = 60,017,280 predicted; 60,017,328 to 60,023,168 seen.
    total = 10 * sent("all_reduce", 4, 4_000_000).bytes
    assert total == 60_017_280
    assert total == pytest.approx(60_017_328, rel=1e-4)


@pytest.mark.parametrize(
    ("op", "payload"),
    [("reduce_scatter", [6, 6, 6, 6]), ("all_gather", [3, 3, 3, 3]), ("all_to_all", [3, 3, 3, 3]), ("broadcast", [8, 4, 0, 0]),
     ("reduce", [3, 4, 4, 4]), ("barrier", [0, 0, 0, 0])],
)  # fmt: skip
def test_payload_by_rank(op: str, payload: list[int]) -> None:
    # S = 4: all_gather 3·S/4; reduce 3/4·S and S/4 more by those who are not the root; broadcast 2·S, S, 0, 0.
    assert [sent(op, 4, 4, rank).payload for rank in range(4)] == payload


def test_barrier_rounds() -> None:
    assert [sent("barrier", n, 0).messages for n in (1, 2, 4, 5, 8)] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 24])
def test_broadcast_reaches_everyone_once(n: int) -> None:
    assert sum(sent("broadcast", n, 10, rank).payload for rank in range(n)) == 10 * (n - 1)


def test_what_cannot_be() -> None:
    for call in (("allreduce", 4, 4), ("all_reduce", 0, 4), ("all_reduce", 4, -1), ("all_reduce", 4, 4, 4)):
        with pytest.raises(InputError):
            sent(*call)  # type: ignore[arg-type]
