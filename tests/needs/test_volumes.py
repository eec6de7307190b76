"""Bytes by parallelism and medium, on a small table worked by hand."""

from __future__ import annotations

import polars as pl

from tests.house.running import run
from tokenwire.needs.network import bisection_bytes
from tokenwire.needs.volumes import busiest, by_medium, volume_figures

TRANSFERS = pl.DataFrame(
    [
        # src, dst, bytes, op, group, parallelism, phase: two nodes of two GPUs
        (0, 1, 100, "all_reduce", "tp", "tp", "forward"),
        (1, 0, 100, "all_reduce", "tp", "tp", "forward"),
        (0, 1, 50, "all_gather", "tp", "tp", "backward"),
        (0, 2, 700, "all_reduce", "dp", "dp", "gradients"),
        (1, 3, 900, "all_reduce", "dp", "dp", "gradients"),
        (3, 1, 10, "all_gather", "dp", "dp", "optimizer"),
    ],
    schema=["src", "dst", "bytes", "op", "group", "parallelism", "phase"],
    orient="row",
)


def test_the_busiest_rank_of_each_kind() -> None:
    found = busiest(by_medium(TRANSFERS, 2))
    assert [(one.parallelism, one.medium, one.rank, one.bytes) for one in found] == [
        ("tp", "nvlink", 0, 150),
        ("dp", "network", 1, 900),
    ]
    assert found[0].parts == (("all_reduce", "tp", 100), ("all_gather", "tp", 50))


def test_bytes_are_conserved() -> None:
    split = by_medium(TRANSFERS, 2)
    assert split["bytes"].sum() == TRANSFERS["bytes"].sum()
    assert split.filter(pl.col("medium") == "network")["bytes"].sum() == 700 + 900 + 10


def test_one_node_has_no_network() -> None:
    assert {one.medium for one in busiest(by_medium(TRANSFERS, 4))} == {"nvlink"}


def test_a_figure_says_how_it_came_about() -> None:
    tp, dp = volume_figures(busiest(by_medium(TRANSFERS, 2)))
    assert tp.name == "sent per GPU per step over NVLink: tensor parallelism"
    assert tp.values == "all_reduce on tp 100 B + all_gather on tp 50 B"
    assert dp.because == "rank 1 sends most"


def test_bisection_takes_the_direction_with_more() -> None:
    assert bisection_bytes(TRANSFERS, 2, 2) == 1600  # 700 + 900 there, 10 back
    assert bisection_bytes(TRANSFERS, 4, 1) == 0


def test_sequence_parallelism_is_a_part_of_tensor_parallelism_and_what_ends_a_step_stands_apart() -> None:
    rows = [(0, 1, 10, "all_gather", "tp", "sp", "forward"), (0, 1, 4, "all_reduce", "tp", "tp", "loss"),
            (0, 1, 7, "all_reduce", "embedding", "pp", "gradients"), (0, 1, 3, "send", "pp", "pp", "forward"),
            (0, 1, 2, "all_reduce", "world", "dp", "optimizer"), (0, 1, 5, "all_gather", "dp", "dp", "optimizer")]  # fmt: skip
    found = busiest(by_medium(pl.DataFrame(rows, schema=TRANSFERS.columns, orient="row"), 2))
    assert {one.parallelism: one.bytes for one in found} == {"tp": 14, "embedding": 7, "pp": 3, "norm": 2, "dp": 5}
    assert {figure.name.partition(": ")[2] for figure in volume_figures(found)} == {
        "tensor parallelism", "tied embedding", "pipeline parallelism", "gradient norm and checks", "data parallelism"
    }  # fmt: skip


def test_the_summary_stands_first() -> None:
    lines = run(["needs"]).stdout.decode().splitlines()
    assert lines[0] == "In short"
    answer = next(number for number, line in enumerate(lines) if "NIC for 10 % of the step, by the time line" in line)
    assert answer < 10
