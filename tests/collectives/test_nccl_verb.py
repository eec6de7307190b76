"""The verb collective on a cluster: table, JSON, files, plot, and one clear line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from tests.collectives.test_cost import command

CLUSTER = ("collective", "all_reduce", "--topology", "dgx-h100-superpod")


def test_table_is_that_of_nccl_tests() -> None:
    ended = command(*CLUSTER, "--ranks", "64", "--sizes", "8B-8GiB")
    lines = ended.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    head = next(line for line in lines if "busbw" in line)
    assert head.split() == ["size", "count", "type", "time", "algbw", "busbw", "picked"]
    assert sum(" float " in line for line in lines) == 31
    assert "What truly crosses a link" in ended.stdout


def test_json() -> None:
    facts = json.loads(command(*CLUSTER, "--ranks", "16", "--bytes", "1GiB", "--json").stdout)
    assert (facts["ranks"], facts["nodes"], facts["ranks_per_node"]) == (16, 2, 8)
    row = facts["rows"][0]
    assert row["busbw_gbytes_per_s"] == pytest.approx(row["algbw_gbytes_per_s"] * 2 * 15 / 16)
    assert row["algbw_gbytes_per_s"] == pytest.approx(2**30 / row["time_us"] / 1e3)
    assert {one["link"] for one in facts["crossing"]} == {"NIC", "NVLink of a GPU"}
    assert facts["graphs"]["Ring"] == {"channels": 8, "intra_gbytes_per_s": 48.0, "inter_gbytes_per_s": 48.0}


def test_settings_and_the_rate_of_the_nics() -> None:
    ring = json.loads(command(*CLUSTER, "--ranks", "16", "--bytes", "8GiB", "--env", "NCCL_ALGO=Ring", "--link", "100 Gb/s", "--json").stdout)
    assert ring["rows"][0]["algorithm"] == "Ring"
    assert ring["rows"][0]["busbw_gbytes_per_s"] == pytest.approx(96, rel=0.01)  # 8 NICs, channels of 12 GB/s
    same = json.loads(command(*CLUSTER, "--ranks", "16", "--bytes", "8GiB", "--algorithm", "ring", "--link", "100 Gb/s", "--json").stdout)
    assert same["rows"] == ring["rows"]


def test_nccl_without_a_cluster_takes_the_default_one() -> None:
    facts = json.loads(command("collective", "all_gather", "--algorithm", "nccl", "--json").stdout)
    assert facts["cluster"] == "dgx-h100-superpod"
    assert facts["rows"][0]["count"] == (256 << 20) // 8 // 4


def test_files_and_plot(tmp_path: Path) -> None:
    csv, svg = tmp_path / "t.csv", tmp_path / "p.svg"
    ended = command(*CLUSTER, "--sizes", "1KiB-1GiB", "--csv", str(csv), "--plot", str(svg))
    assert ended.returncode == 0
    frame = pl.read_csv(csv)
    assert frame.height == 21
    assert frame["busbw_gbytes_per_s"].max() < 480  # type: ignore[operator]
    drawn = svg.read_text("utf-8")
    for name in ("Ring", "Tree", "NVLS", "busbw, GB/s"):
        assert name in drawn


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "dgx-h100-superpod"\nnics_per_node = 1\nnic_rate = "100 Gb/s"\n', "utf-8")
    ended = command("collective", "all_reduce", "--topology", str(file), "--ranks", "16", "--bytes", "1GiB")
    assert "above the NIC" in " ".join(ended.stdout.split())


def test_nodes_of_nccls_own_file(tmp_path: Path) -> None:
    # NICs below the GPUs' switches: LL128 is in use; below the CPU only: it is off, and LL or Simple takes its place.
    from tests.fabric.test_pcie import node

    picked = {}
    for name, text in (("near", node("G0 N0;G1 N1")), ("far", node("G0 G1;N0 N1"))):
        file = tmp_path / f"{name}.xml"
        file.write_text(text)
        facts = json.loads(command("collective", "all_gather", "--topology", str(file), "--ranks", "8", "--bytes", "1MiB", "--json").stdout)
        assert (facts["nodes"], facts["ranks_per_node"], facts["nic_bytes_per_s"]) == (4, 2, 50e9)
        picked[name] = facts["rows"][0]["protocol"]
    assert picked["near"] == "LL128"
    assert picked["far"] != "LL128"


@pytest.mark.parametrize("name", ["dgx-a100-superpod", "gb200-nvl72", "alibaba-hpn", "deepseek-h800", "leonardo", "meta-24k-roce",
                                  "university-100gbe"])  # fmt: skip
def test_every_cluster_of_the_catalog(name: str) -> None:
    facts = json.loads(command("collective", "all_reduce", "--topology", name, "--ranks", "144", "--sizes", "8B,1GiB", "--json").stdout)
    assert facts["ranks"] == 144
    assert all(0 < row["time_us"] < 1e6 for row in facts["rows"])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["all_reduce", "--topology", "dgx-h100-superpod", "--ranks", "12"], "--ranks 8"),
        (["all_reduce", "--topology", "dgx-h100-superpod", "--ranks", "0"], "--ranks"),
        (["all_reduce", "--topology", "dgx-h100-superpod", "--ranks", "99999999992"], "ranks"),
        (["all_reduce", "--topology", "dgx-h100"], "dgx-h100-superpod"),
        (["all_reduce", "--topology", "nowhere.toml"], "nowhere.toml"),
        (["all_reduce", "--topology", "tpu-v4-torus"], "TPU"),
        (["all_to_all", "--algorithm", "nccl"], "pairwise"),
        (["all_reduce", "--algorithm", "nccl", "--env", "NCCL_ALGO=Rng"], "Ring"),
        (["all_reduce", "--algorithm", "nccl", "--topology", "ring"], "cluster"),
        (["all_reduce", "--algorithm", "nccl", "--latency", "3 us"], "--latency"),
        (["all_reduce", "--algorithm", "nccl", "--transfers"], "--transfers"),
        (["all_reduce", "--algorithm", "nccl", "--plot", "x.gif", "--sizes", "8B-1KiB"], "svg"),
        (["all_reduce", "--algorithm", "nccl", "--plot", "x.svg"], "--sizes"),
        (["all_reduce", "--algorithm", "nccl", "--sizes", "8GiB-8B"], "8B-8GiB"),
        (["all_reduce", "--algorithm", "nccl", "--bytes", "8"], "unit"),
        (["all_reduce", "--algorithm", "nccl", "--dtype", "fp7"], "fp16"),
        (["all_reduce", "--algorithm", "nccl", "--link", "0 Gb/s", "--ranks", "16"], "NIC"),
        (["all_reduce", "--topology", "dgx-h100-superpod", "--algorithm", "rign"], "Ring"),
        (["all_reduce", "--topology", "ring", "--sizes", "8B-8GiB"], "cluster"),
        (["all_reduce", "--plot", "x.svg"], "cluster"),
    ],
)
def test_wrong_input(arguments: list[str], word: str) -> None:
    ended = run("collective", *arguments)
    assert ended.exit_code == 1
    assert isinstance(ended.exception, SystemExit | ValueError)
    said = str(ended.exception) if not isinstance(ended.exception, SystemExit) else ended.stderr
    assert word in said
    assert len(said.strip().splitlines()) == 1
    assert ended.stdout == ""


def run(*arguments: str) -> Result:
    """Run the verb in this process: a process each would take most of the time of these tests."""
    from tokenwire.cli import app

    return CliRunner().invoke(app, list(arguments))
