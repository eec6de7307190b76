"""The page of users' questions: every command runs, prints what the page shows, and the figures are right by hand."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Any

import pytest

from tests.house.running import run
from tokenwire.collectives import cost

pytestmark = pytest.mark.slow

Shown = tuple[str, str, str]


def _blocks(root: Path) -> list[tuple[str, str]]:
    page = (root / "docs" / "cases.md").read_text("utf-8")
    return re.findall(r"```(toml|json|sh|text|error)\n(.*?)```", page, re.DOTALL)


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's journey files."""
    out = tmp_path_factory.mktemp("cases")
    for kind, text in _blocks(root):
        if kind == "toml":
            name = text.splitlines()[0].removeprefix("# ")
            assert re.fullmatch(r"[\w-]+\.toml", name)
            (out / name).write_text(text, "utf-8")
        if kind == "json":
            (out / json.loads(text)["_name_or_path"]).write_text(text, "utf-8")
    return out


def _commands() -> list[Shown]:
    blocks = _blocks(Path(__file__).resolve().parents[2])
    return [
        (text.strip(), kind, shown)
        for (language, text), (kind, shown) in pairwise(blocks)
        if language == "sh"
    ]


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(("command", "kind", "shown"), _commands(), ids=lambda x: str(x).partition("\n")[0][:60])
def test_a_command_prints_what_the_page_shows(command: str, kind: str, shown: str, folder: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "tokenwire"
    assert kind in ("text", "error")
    ended = run(arguments, folder=folder)
    assert ended.returncode == (1 if kind == "error" else 0), ended.stderr.decode()
    printed = iter(_lines((ended.stderr if kind == "error" else ended.stdout).decode()))
    for line in _lines(shown):
        # In order; the iterator goes on where the line before was found.
        assert line == "…" or any(line in found for found in printed), line


def _json(folder: Path, *arguments: str) -> Any:
    ended = run([*arguments, "--json"], folder=folder)
    assert ended.returncode == 0, ended.stderr.decode()
    return json.loads(ended.stdout)


def _ops(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    return _json(folder, "step", *arguments)["stages"][0]["ops"]  # type: ignore[no-any-return]


def _sent(folder: Path, *arguments: str) -> dict[tuple[str, str], int]:
    rows = _json(folder, "traffic", *arguments)["per_rank"]
    return {(row["op"], row["group"]): row["sent_bytes"] for row in rows}


def test_one_zero_3(folder: Path) -> None:
    # A layer: q, o 2·8192² and k, v 2·8192·1024, gate, up, down 3·8192·28672, two norms 2·8192 = 855,654,400 parameters;
    # 93 layers, embedding and head 2·32000·8192, final norm 8192: 80,100,155,392 in all.
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    total = 93 * layer + 2 * 32000 * 8192 + 8192
    assert (layer, total) == (855_654_400, 80_100_155_392)
    # Gathered: in forward all but the 187 norms (of 8192), in backward all that the end of the forward has not left: the head
    # and three products of 8192·28672 of the last layer; the norms after the optimizer.
    kept = 32000 * 8192 + 3 * 8192 * 28672
    gathered = 2 * (total - 187 * 8192) - kept + 187 * 8192
    sent = _sent(folder, "zero3.toml")
    # 2 B a parameter, of which 127/128 leave the rank.
    assert sent["all_gather", "dp"] == pytest.approx(2 * gathered * 127 / 128, rel=1e-9)
    assert sent["reduce_scatter", "dp"] == 2 * total * 127 // 128
    rank = sent["all_gather", "dp"] + sent["reduce_scatter", "dp"]
    # One of 8 ring edges of a node leaves it: 16 nodes each with what one rank sends.
    assert _json(folder, "traffic", "zero3.toml")["totals"]["network_bytes"] == pytest.approx(16 * rank, rel=1e-6)
    needs = {x["name"]: x["value"] for x in _json(folder, "needs", "zero3.toml", "--mfu", "50%")["requirements"]}
    # Out of a node, bits a second.
    assert 8 * rank / needs["time that the step computes"] == pytest.approx(593e9, rel=1e-3)


def test_one_fsdp_sends_three_whole_passes(folder: Path) -> None:
    options = ("plan.dialect=torchtitan", "plan.fsdp_reshard_after_forward=always", "plan.mixed_precision_reduce=bfloat16")
    sent = _sent(folder, "zero3.toml", *[x for o in options for x in ("--set", o)])
    assert sent["all_gather", "dp"] == 2 * 2 * 80_100_155_392 * 127 // 128
    assert sent["reduce_scatter", "dp"] == 2 * 80_100_155_392 * 127 // 128


def test_two_dtypes(folder: Path) -> None:
    # Llama 2 7B over tp 2: 32 layers of (4·4096² + 3·4096·11008)/2 + 2·4096, embedding and head 2·32000/2·4096, norm 4096.
    held = 32 * ((4 * 4096**2 + 3 * 4096 * 11008) // 2 + 2 * 4096) + 32000 * 4096 + 4096
    assert held == 3_369_340_928
    for fp32, size in (("true", 4), ("false", 2)):
        dp = [x for x in _ops(folder, "gpt7b.toml", "--set", f"plan.grad_reduce_in_fp32={fp32}") if x["group"] == "dp"]
        found = {x["op"]: x["bytes"] for x in dp if x["elements"] > 1000}
        assert found == {"reduce_scatter": held * size, "all_gather": held * 2}


def test_four_groups_of_one_are_silent(folder: Path) -> None:
    assert {x["op"] for x in _ops(folder, "hsdp.toml") if x["phase"] in ("forward", "backward")} == set()
    assert min(x["group_size"] for x in _ops(folder, "hsdp.toml")) == 16


@pytest.mark.parametrize("n", [8, 16])
def test_five_ulysses_and_megatron(n: int, folder: Path) -> None:
    S = 32768 * 4096 * 2
    gpus = ("--set", f"cluster.gpus={n}")
    ulysses = _sent(folder, "long.toml", "--set", f"plan.cp={n}", *gpus)
    assert ulysses["all_to_all", "cp"] == 32 * 8 * S * (n - 1) // n**2
    megatron = _sent(folder, "long.toml", "--set", f"plan.tp={n}", *gpus)
    # A layer 10, and 5 of a micro-batch: embedding and its gradient, head input, once more, and its gradient.
    once = megatron["all_gather", "tp"] + megatron["reduce_scatter", "tp"] - 32 * 10 * S * (n - 1) // n
    assert once % (S * (n - 1) // n) == 0
    assert once // (S * (n - 1) // n) == 5


@pytest.mark.parametrize(
    ("nodes", "limit", "reached"),
    [(2, 2, 2 * (1 - comb(128, 8) / comb(256, 8))), (4, 4, 4 * (1 - comb(192, 8) / comb(256, 8))),
     (8, 4, 4 * (1 - comb(96, 8) / comb(128, 8)))],
)  # fmt: skip
def test_six_experts(nodes: int, limit: int, reached: float, folder: Path) -> None:
    options = [f"cluster.nodes={nodes}", f"plan.ep={8 * nodes}", f"plan.moe_router_num_groups={nodes}",
               f"plan.moe_router_group_topk={limit}"]  # fmt: skip
    facts = _json(folder, "step", "experts.toml", *[x for o in options for x in ("--set", o)], "--routing", "1")["routing"]
    copies = facts["copies_per_token"]
    assert facts["nodes_reached_per_token"] == pytest.approx(reached)
    assert copies["a_row_a_node"]["network"] == pytest.approx(reached * (nodes - 1) / nodes)
    assert copies["a_row_an_expert"] == pytest.approx(
        {"own": 8 / (8 * nodes), "nvlink": 8 / nodes - 1 / nodes, "network": 8 - 8 / nodes}
    )
    # The draw: rows are conserved, and the limit holds.
    assert sum(facts["drawn"]["rows_received_by_rank"]) == 8 * nodes * 4096 * 8
    assert facts["drawn"]["nodes_reached_per_token"] <= limit


def test_seven_what_crosses_the_nic(folder: Path) -> None:
    S = 6_738_415_616 * 4
    for algorithm, crossing in (("ring", 2 * 15 / 16 * S), ("hierarchical", S)):
        tiers = _json(folder, "traffic", "two-nodes.toml", "--algorithm", f"all_reduce={algorithm}")["per_tier"]
        # Two NICs send, two leaf ports receive: the tier counts both links on the way.
        (leaf,) = [tier["bytes"] for tier in tiers if tier["tier"] == "leaf"]
        assert leaf == pytest.approx(4 * crossing, rel=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "n"),
    [(name, n) for name in ("ring", "bidirectional", "tree") for n in (2, 3, 8, 16)] + [("halving_doubling", n) for n in (2, 8, 16)],
)
def test_eight_busbw_stays_below_the_link(algorithm: str, n: int) -> None:
    found = cost("all_reduce", algorithm, n, 1 << 24, rate=1e9, latency=1e-6)
    assert found.busbw <= 1e9


def test_ten_what_dropout_keeps(folder: Path) -> None:
    card = ("--option", "gpu_memory=31.74GiB", "--option", "gpu_capability=7", "--option", "transformer_impl=local")
    without = [x for name in ("attention", "hidden") for x in ("--set", f"plan.{name}_dropout=0")]
    found, less = (_json(folder, "memory", "gpt774m.toml", *card, *more) for more in ((), without))
    # A layer: mask and result, 3 B, of 4·20·1024² probabilities, and two masks of 4·1024·1280; the embedding's mask once.
    assert found["peak_memory_bytes_by_stage"][0] - less["peak_memory_bytes_by_stage"][0] == 36 * 3 * 80 * 1024**2 + (2 * 36 + 1) * 4096 * 1280
    assert (found["fits"], less["fits"]) == (False, True)
    # What could not be allocated any more, 786 MiB, are the logits of 4·1,024 tokens in fp32 over 50,304 rows.
    assert 4 * 1024 * 50_304 * 4 == 786 * 2**20


def test_thirteen_logits_once(folder: Path) -> None:
    # Known: 72.48 GiB in use, of which context, NCCL and the allocator's rest are no part of the prediction.
    tokens, vocabulary, h, gib = 32 * 2048, 65_536, 1280, 2**30
    found = _json(folder, "memory", "nanochat.toml")["stages"][0]
    assert found["peak_bytes"] / gib == pytest.approx(72.48, rel=0.1)
    logits = 2 * tokens * vocabulary
    assert logits == 8 * gib
    eager = _json(folder, "memory", "nanochat.toml", "--set", "plan.compile_enable=false")["stages"][0]
    # Eager: 12 bytes a logit at the loss. Compiled: 2, and in the head's backward gradients of its input and weight.
    assert eager["peak_bytes"] - found["peak_bytes"] == 12 * tokens * vocabulary - logits - 2 * tokens * h - 2 * vocabulary * h
    # 20 layers of 18 times the residual stream, with the sums of the softmax and the statistics of 2 norms in fp32; liger: 1/52 of the
    # logits, rounded up to 2,048 tokens.
    assert found["by_kind"]["activations"] == 20 * (18 * 2 * tokens * h + 4 * tokens * 10 + 2 * 4 * tokens)


def test_thirteen_stacks_of_muon(folder: Path) -> None:
    rows = _ops(folder, "nanochat.toml")
    # 80 matrices of 1,280² in 8 x 10 places, 20 each of 1,280 x 5,120 and back in 8 x 3; embedding and head.
    expected = sorted([80 * 1280**2, 24 * 1280 * 5120, 24 * 1280 * 5120, 65_536 * 1280, 65_536 * 1280])
    for op in ("reduce_scatter", "all_gather"):
        assert sorted(x["elements"] for x in rows for _ in range(x["count"]) if x["op"] == op and x["elements"] > 10**6) == expected


def test_fourteen_layers_of_different_sizes(folder: Path) -> None:
    kinds = _json(folder, "model", "openelm.json")
    assert kinds["parameters"] == 1_079_891_456
    # Layer 0: q, k, v (16 + 2·4)·64·2048, output 16·64·2048, norms of d 2·64, gate and up 2·1024·2048, down 1024·2048, two norms.
    assert kinds["layer_kinds"][0]["parameters_each"] == (24 + 16) * 64 * 2048 + 2 * 64 + 3 * 1024 * 2048 + 2 * 2048
    puzzle = _json(folder, "model", "puzzle.json")
    whole = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    no_attention, linear = 3 * 4096 * 3584 + 4096, 2 * 4096**2 + 2 * 4096 * 512 + 4096**2 + 2 * 4096
    assert [x["parameters_each"] for x in puzzle["layer_kinds"]] == [whole, no_attention, linear]
    assert puzzle["parameters"] == whole + no_attention + linear + 2 * 32000 * 4096 + 4096


def test_fifteen_what_is_left_out_is_named(folder: Path) -> None:
    found = _json(folder, "model", "ministral.json")
    assert [(x["field"], x["kind"]) for x in found["left_out"]] == [("vision_config", "part")]
    # A layer: q and output 2·3072·4096, k and v 2·3072·1024, 3·3072·9216, two norms; 26 of them, tied embedding, final norm.
    layer = 2 * 3072 * 4096 + 2 * 3072 * 1024 + 3 * 3072 * 9216 + 2 * 3072
    assert found["parameters"] == 26 * layer + 131072 * 3072 + 3072


def test_nineteen_replicas_agree_once_a_step(folder: Path) -> None:
    # 8,030,261,248 parameters, all of whose first dimensions 8 divides, in fp32; an eighth of them a rank is summed over replicas.
    shard = 4 * 8_030_261_248 // 8
    assert shard == 4_015_130_624
    for options, scattered, summed in (
        ((), 4, 4),
        (("plan.set_requires_all_reduce=false",), 4, 1),
        (("plan.set_requires_gradient_sync=false",), 1, 1),
        (("plan.set_requires_all_reduce=false", "plan.set_all_reduce_hook=true"), 4, 4),
    ):
        ops = _ops(folder, "replicas.toml", *[x for option in options for x in ("--set", option)])
        gradients = [x for x in ops if x["phase"] == "gradients"]
        found = {op: sum(x["count"] * x["bytes"] for x in gradients if x["op"] == op) for op in ("reduce_scatter", "all_reduce")}
        assert found == {"reduce_scatter": scattered * 8 * shard, "all_reduce": summed * shard}


def test_twenty_offload(folder: Path) -> None:
    P, largest = 6_738_415_616, 32_000 * 4096
    both, one, none = (
        _json(folder, "memory", "offload.toml", "--set", f"plan.offload_param={param}", "--set", f"plan.offload_optimizer={optimizer}")
        for param, optimizer in (("cpu", "cpu"), ("none", "cpu"), ("none", "none"))
    )
    peak = [facts["peak_memory_bytes_by_stage"][0] for facts in (both, one, none)]
    # As the estimator: 0.49 GB of the largest layer, 2·P/4 more with parameters on the GPU (3.63 GB), and the optimizer's states.
    assert (4 * largest / 2**30, (4 * largest + 2 * P / 4) / 2**30) == (pytest.approx(0.49, abs=0.005), pytest.approx(3.63, abs=0.005))
    assert peak[1] - peak[0] == pytest.approx(2 * P / 4, abs=4)
    assert peak[2] - peak[1] == pytest.approx((2 + 12) * P / 4, abs=4)
    moved = _json(folder, "time", "offload.toml")["transfers"]
    assert sum(x["bytes"] for x in moved if x["direction"] == "to_host") == (2 + 4) * P / 4
