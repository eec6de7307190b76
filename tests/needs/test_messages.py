"""Messages of a step: sizes and numbers worked by hand, and what conserves them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.needs.messages import framing_by_key, message_size, messages, messages_sent, sending_share
from tokenwire.step.operation import Operation, frame
from tokenwire.wire import WireConfig

WIRE = WireConfig(transport="rocev2", mtu=4096)


def _row(op: str, n: int, elements: int, count: int = 1, **other: object) -> Operation:
    given = {"group": "dp", "phase": "gradients", "dtype": "bf16", "parallelism": "dp", "what": "w"} | other
    return Operation(stage=0, op=op, group_size=n, count=count, elements=elements, **given)  # type: ignore[arg-type]


def test_a_ring_all_reduce_by_hand() -> None:
    # 16,384 elements of bf16 = 32,768 B over 4 ranks: pieces of 8,192 B, 2·3 = 6 of them a call, 2 calls = 12.
    # A piece is two packets of 4,096: 8,192 + 2·82 + 16 of RETH = 8,372 B on the wire.
    (row,) = messages(frame([_row("all_reduce", 4, 16384, count=2)]), WIRE).to_dicts()
    assert (row["message"], row["messages"], row["packets"], row["wire_bytes"]) == (8192, 12, 24, 12 * 8372)
    assert row["senders"] == 1.0


def test_receives_and_setup_send_nothing() -> None:
    table = frame([
        _row("recv", 2, 100), _row("broadcast", 8, 100, phase="setup"), _row("send", 2, 100, group="pp"),
    ])  # fmt: skip
    assert messages(table, WIRE)["op"].to_list() == ["send"]


def test_a_broadcast_leaves_its_last_rank_silent() -> None:
    (row,) = messages(frame([_row("broadcast", 4, 100)]), WIRE).to_dicts()
    assert (row["message"], row["messages"], row["senders"]) == (200, 1, 0.75)


def test_no_operation_is_an_empty_table() -> None:
    assert messages(frame([]), WIRE).height == 0


def test_framing_is_weighed_over_the_rows_of_a_kind() -> None:
    # Two rows of one kind: 1 message of 4,096 B (4,194 on the wire) and 1 of 8,192 (8,372): 12,566 for 12,288 of payload.
    table = frame([_row("send", 2, 2048), _row("send", 2, 4096)])
    (row,) = framing_by_key(messages(table, WIRE)).to_dicts()
    assert row["wire_per_byte"] == pytest.approx(12566 / 12288)
    assert row["packets_per_byte"] == pytest.approx(3 / 12288)


@given(op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]), n=st.integers(2, 64), S=st.integers(0, 10**9))
def test_messages_carry_what_a_ring_moves(op: str, n: int, S: int) -> None:
    # nccl-tests: 2(n-1)/n·S for all_reduce, (n-1)/n·S for the others; a piece is at most one byte more than S/n.
    times = 2 if op == "all_reduce" else 1
    moved = message_size(op, n, S) * messages_sent(op, n) * sending_share(op, n)
    exact = times * (n - 1) * S / n
    assert exact <= moved + 1e-6 * S
    assert moved < exact + times * n


def test_columns_stay() -> None:
    table = frame([_row("all_gather", 4, 64)])
    assert isinstance(table, pl.DataFrame)
    assert messages(table, WIRE).columns[: len(table.columns)] == table.columns
