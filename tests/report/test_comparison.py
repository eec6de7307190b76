"""Comparisons: volumes worked by hand, properties of the tables, and the verb."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.house.running import run
from tokenwire.errors import InputError
from tokenwire.journey import Journey
from tokenwire.model import parameters, preset
from tokenwire.needs import messages
from tokenwire.report.comparison import COMPARISONS, Comparison, compare, picture
from tokenwire.report.comparison.methods import METHODS, plan_of
from tokenwire.report.comparison.volume import volume
from tokenwire.report.comparison.width import WIDTHS, widened

N = 8


@cache
def _compared(name: str) -> Comparison:
    return compare(name, Journey.read(None), N)


def test_data_parallel_by_hand() -> None:
    # A ring all_reduce of P gradients in bf16 over 8 GPUs: each sends 2·7/8·2P, all together 2·7·2P = 28·P bytes. The
    # vocabulary is padded to a multiple of 128: GPT-2's 50,257 rows become 50,304, 47 rows of 768 more.
    arch = preset("gpt2")
    P = parameters(arch).total + 47 * 768
    training = Journey.read(None).config.training
    of = volume(arch, plan_of(METHODS["data"], arch, training, N), Journey.read(None).config.wire)
    assert of.sent_bytes == pytest.approx(28 * P, rel=1e-5)  # what else is said (loss, gradient norm) is a few bytes
    assert of.sent_bytes >= 28 * P
    # A full packet of 4,096 B costs 82 B more (Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4, preamble and gap 20).
    assert of.wire_bytes == pytest.approx(28 * P * (1 + 82 / 4096), rel=1e-3)
    # But the 8 GPUs of a node exchange them over NVLink, which has no such headers: per token count the bytes sent.
    assert of.per_token == of.sent_bytes / (16 * 256)


def test_a_row_of_the_vocabulary_costs_what_the_formula_says() -> None:
    # Each row of a tied embedding is h gradients: 2(n-1)·2·h = 28·256 B a step for all GPUs, in 4,096 tokens.
    journey = Journey.read(None)
    arch, training, wire = journey.model().architecture, journey.config.training, journey.config.wire
    sizes = [
        volume(model, plan_of(METHODS["data"], model, training, N), wire)
        for model in (replace(arch, vocabulary_size=V) for V in (1024, 2048))
    ]
    assert sizes[1].sent_bytes - sizes[0].sent_bytes == 1024 * 28 * 256


def test_the_tables_multiply_up() -> None:
    for row in _compared("tokenizers").frame.to_dicts():
        assert row["fertility"] == pytest.approx(row["tokens"] / row["words"])
        for name in METHODS:
            assert row[f"{name}_bytes_per_word"] == pytest.approx(row["fertility"] * row[f"{name}_bytes_per_token"])


def test_rows_cost_data_parallel_and_tokens_cost_tensor_parallel() -> None:
    rows = {row["tokenizer"]: row for row in _compared("tokenizers").frame.to_dicts()}
    small, large = rows["bytes"], rows["o200k"]
    assert large["fertility"] < small["fertility"]
    # The body stays; the tied embedding is 256 rows, or 200,019 padded to 200,064, of 256 numbers: 6.44 M become 57.6 M.
    arch = Journey.read(None).model().architecture
    grown = [parameters(replace(arch, vocabulary_size=V)).total for V in (256, 200_064)]
    assert large["data_bytes_per_token"] / small["data_bytes_per_token"] == pytest.approx(grown[1] / grown[0], rel=1e-3)
    assert large["tensor_bytes_per_token"] == pytest.approx(small["tensor_bytes_per_token"], rel=1e-3)
    assert large["tensor_bytes_per_word"] < small["tensor_bytes_per_word"]


def test_pipeline_grows_with_width_and_data_with_its_square() -> None:
    rows = {row["hidden_size"]: row for row in _compared("width").frame.to_dicts()}
    assert tuple(rows) == WIDTHS
    # Layers double with the width from 2,048 on: parameters grow by 2·4 = 8, less the embedding's share.
    grown = rows[16384]["data_bytes_per_token"] / rows[8192]["data_bytes_per_token"]
    assert 7.8 < grown < 8
    for name in METHODS:
        values = [row[f"{name}_bytes_per_token"] for row in rows.values()]
        assert values == sorted(values)


@pytest.mark.parametrize("h", WIDTHS)
def test_a_widened_model_keeps_its_ratios(h: int) -> None:
    arch = preset("llama-3.1-8b")
    wide = widened(arch, h)
    assert wide.hidden_size == h
    mixer, was = wide.layers[0].mixer, arch.layers[0].mixer
    assert mixer.heads * mixer.head_dim == h  # type: ignore[union-attr]
    assert mixer.kv_heads * was.heads == mixer.heads * was.kv_heads  # type: ignore[union-attr]
    assert wide.layers[0].feed_forward.width / h == pytest.approx(14336 / 4096, rel=0.02)  # type: ignore[union-attr]


def test_widths_need_attention() -> None:
    with pytest.raises(InputError, match="attention"):
        widened(replace(preset("gpt2"), layers=()), 256)


def test_methods_on_one_cluster() -> None:
    journey = Journey.read(None)
    rows = {row["method"]: row for row in _compared("parallelism").frame.to_dicts()}
    own = rows["this journey's plan"]
    assert own["sent_bytes"] == journey.traffic().transfers["bytes"].sum()
    assert {row["tp"] * row["pp"] * row["dp"] for row in rows.values() if row["possible"]} == {8}
    # Tensor parallelism inside a node of 4 leaves the network to data parallelism.
    assert rows["tensor in the node"]["tp"] == 4
    assert rows["tensor in the node"]["network_bytes_per_gpu"] < rows["tensor"]["network_bytes_per_gpu"]
    # Gradients in FP32, as the journey has them: a ring all_reduce sends 4 + 4 B per parameter, the distributed optimizer 4 B of
    # the gradient and 2 B of the BF16 parameter, FSDP 2 + 2 + 4 B. P = 6.64 M: 7/8·8 B·P = 46.5 MB per GPU, 34.9 MB, 46 MB.
    data, optimizer, sharded = rows["data"], rows["distributed optimizer"], rows["FSDP"]
    assert data["sent_bytes"] / 8 == pytest.approx(46.5e6, rel=2e-3)
    assert optimizer["sent_bytes"] == pytest.approx(6 / 8 * data["sent_bytes"], rel=1e-4)
    assert sharded["sent_bytes"] == pytest.approx(data["sent_bytes"], rel=0.02)


@pytest.mark.parametrize("precision", [True, False])
def test_gradient_precision_of_the_journey_is_that_of_every_method(precision: bool) -> None:
    # BF16: 2 + 2 B per parameter by all_reduce and by the distributed optimizer; torchtitan reduces in BF16 then too, 2 + 2 + 2 B.
    journey = Journey.read(None, [f"plan.grad_reduce_in_fp32={str(precision).lower()}"])
    rows = {row["method"]: row["sent_bytes"] for row in compare("parallelism", journey, N).frame.to_dicts()}
    each = (8, 6, 8) if precision else (4, 4, 6)
    for name, size in zip(("data", "distributed optimizer", "FSDP"), each, strict=True):
        assert rows[name] / rows["data"] == pytest.approx(size / each[0], rel=0.02)
    for what in ("tokenizers", "width"):
        shown = compare(what, journey, N)
        assert any(f"{4 if precision else 2}P B by each GPU" in formula.because for formula in shown.formulas)


@pytest.mark.parametrize(
    ("method", "section"),
    [
        ("data", {"tp": 1, "pp": 1, "sequence_parallel": False, "use_distributed_optimizer": False}),
        ("distributed optimizer", {"tp": 1, "pp": 1, "sequence_parallel": False}),
        ("tensor", {"tp": 8, "pp": 1, "sequence_parallel": False, "use_distributed_optimizer": False}),
        ("tensor in the node", {"tp": 4, "pp": 1}),
        ("pipeline", {"tp": 1, "pp": 8, "sequence_parallel": False, "use_distributed_optimizer": False}),
        ("tensor, pipeline, data", {"tp": 4, "pp": 2}),
        ("FSDP", {"dialect": "torchtitan", "tp": 1, "pp": 1}),
    ],
)
def test_one_plan_has_one_number_in_every_verb(method: str, section: dict[str, object]) -> None:
    sets = [f"plan.{key}={str(value).lower()}" for key, value in section.items()]
    (row,) = [row for row in json.loads(run(["compare", "parallelism", "--json"]).stdout)["rows"] if row["method"] == method]
    options = [part for setting in sets for part in ("--set", setting)]
    totals = json.loads(run(["traffic", *options, "--json"]).stdout)["totals"]
    assert row["sent_bytes"] == totals["sent_bytes"]
    assert (row["nvlink_bytes_per_gpu"] * 8, row["network_bytes_per_gpu"] * 8) == (totals["nvlink_bytes"], totals["network_bytes"])
    journey = Journey.read(None, sets)
    sent = messages(journey.step(), journey.config.wire)
    # needs and compare tokenizers count the messages of a rank of each stage: the same bytes, pieces of a byte counted whole.
    by_messages = (sent["message"] * sent["messages"] * sent["senders"]).sum() * journey.plan().world / journey.plan().pp
    assert by_messages == pytest.approx(totals["sent_bytes"], rel=1e-6, abs=64 * journey.plan().world)


def test_a_plan_that_does_not_work_leaves_the_others() -> None:
    from tokenwire.report.comparison.parallelism import compare_parallelism

    result = compare_parallelism(Journey.read(None, overrides=["plan.tp=3"]), 8)
    possible = {row["method"]: row["possible"] for row in result.frame.to_dicts()}
    assert not possible["this journey's plan"]
    assert possible["data"]
    # Where nothing works there is nothing to compare: one line.
    with pytest.raises(InputError, match="global batch"):
        compare_parallelism(Journey.read(None, overrides=["training.global_batch=1", "cluster.gpus=1000"]), 8)


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_printed_and_plotted(name: str, tmp_path: Path) -> None:
    shown = run(["compare", name, "--plot", "plot.svg"], folder=tmp_path)
    assert shown.returncode == 0, shown.stderr.decode()
    text = shown.stdout.decode()
    assert max(map(len, text.splitlines())) <= 80
    assert "How the numbers came about" in text
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    facts = json.loads(run(["compare", name, "--json"], folder=tmp_path).stdout)
    assert len(facts["rows"]) == _compared(name).frame.height
    assert all(figure["unit"] for figure in facts["formulas"])
    written = run(["compare", name, "--csv", "-"], folder=tmp_path).stdout.decode().splitlines()
    assert len(written) == len(facts["rows"]) + 1


def test_the_picture_marks_the_least() -> None:
    assert sum("◂" in str(part) for part in picture(_compared("tokenizers"))) >= 1


@pytest.mark.parametrize("gpus", [-1, 0, 1, 10**9])
def test_numbers_of_gpus_that_are_none(gpus: int) -> None:
    with pytest.raises(InputError, match="--gpus"):
        compare("width", Journey.read(None), gpus)


def test_the_whole_commedia(shared: Path) -> None:
    whole = shared / "data" / "commedia" / "commedia.it.txt"
    ended = run(["compare", "tokenizers", "--text", str(whole), "--json"])
    assert ended.returncode == 0, ended.stderr.decode()
    rows = {row["tokenizer"]: row for row in json.loads(ended.stdout)["rows"]}
    assert rows["BPE 8k"]["vocabulary_size"] == 8000
    # It has pairs for 21,528 entries: what was asked for as 32,000 is named by what it became.
    assert rows["BPE 21,528"]["fertility"] < rows["BPE 8k"]["fertility"] < rows["BPE 1k"]["fertility"]
