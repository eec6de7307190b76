"""Wrong input of every kind: one line on standard error, status 1, nothing on standard output, no file left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.running import run

# name, arguments, files to lay in the folder, words that the line must have
CASES: list[tuple[str, list[str], dict[str, bytes], list[str]]] = [
    ("missing text", ["text", "nowhere.txt"], {}, ["nowhere.txt", "no such file"]),
    ("a folder as text", ["text", "."], {}, ["folder"]),
    ("empty text", ["text", "empty.txt"], {"empty.txt": b""}, ["empty.txt", "empty"]),
    ("only blanks", ["text", "blank.txt"], {"blank.txt": b" \n\t\n"}, ["blank.txt"]),
    ("latin-1", ["text", "old.txt"], {"old.txt": "perché".encode("latin-1")}, ["0xe9", "offset 5", "--encoding"]),
    ("unknown encoding", ["text", "a.txt", "--encoding", "utf-99"], {"a.txt": b"a"}, ["utf-99"]),
    ("a canto that is not there", ["text", "--verse", "Inferno II"], {}, ["Inferno"]),
    ("a place that is none", ["text", "--verse", "nel mezzo"], {}, ["nel mezzo"]),
    ("a missing journey", ["walk", "nowhere.toml"], {}, ["nowhere.toml", "no such file"]),
    ("not TOML", ["walk", "j.toml"], {"j.toml": b"[plan\ntp 8"}, ["j.toml", "not TOML"]),
    ("not even text", ["walk", "j.toml"], {"j.toml": b"\xff\xfe\x00"}, ["j.toml", "UTF-8"]),
    ("an unknown section", ["walk", "j.toml"], {"j.toml": b"[plam]\ntp=2"}, ["[plam]", "plan"]),
    ("a value for a section", ["walk", "j.toml"], {"j.toml": b"plan = 3"}, ["plan", "section"]),
    ("an unknown key", ["walk", "--set", "training.global_bach=4"], {}, ["global_bach", "global_batch"]),
    ("an unknown key of a plan", ["walk", "--set", "plan.tq=4"], {}, ["tq", "tp"]),
    ("an unknown dialect", ["walk", "--set", "plan.dialect=megatrom"], {}, ["megatrom", "megatron"]),
    ("an unknown preset", ["walk", "--set", "model.preset=llama-3.1-8"], {}, ["llama-3.1-8", "llama-3.1-8b"]),
    ("an unknown cluster", ["walk", "--set", "cluster.preset=dgx-h100-superpot"], {}, ["dgx-h100-superpod"]),
    ("an override without a key", ["walk", "--set", "tp=4"], {}, ["section.key=value"]),
    ("an unknown scene", ["walk", "--scene", "verses"], {}, ["verses", "verse"]),
    ("an unknown scale", ["walk", "--scale", "406b"], {}, ["406b", "405b"]),
    ("tp that does not divide the heads", ["walk", "--set", "plan.tp=3"], {}, ["tp"]),
    ("more ranks than the cluster has", ["walk", "--set", "plan.tp=64"], {}, ["tp"]),
    ("a stage without layers", ["walk", "--set", "plan.pp=4", "--set", "plan.vpp=4"], {}, ["pp"]),
    ("tp of zero", ["walk", "--set", "plan.tp=0"], {}, ["tp"]),
    ("a negative batch", ["walk", "--set", "training.global_batch=-16"], {}, ["global_batch"]),
    ("a sequence of nothing", ["walk", "--set", "training.sequence_length=0"], {}, ["sequence_length"]),
    ("no nodes", ["walk", "--set", "cluster.nodes=0"], {}, ["nodes"]),
    ("a huge number", ["walk", "--set", "plan.tp=99999999999999999999"], {}, ["tp"]),
    ("an absurd cluster", ["walk", "--set", "cluster.nodes=9000000000000"], {}, ["nodes"]),
    ("a size without a unit", ["walk", "--set", "wire.mtu=-5"], {}, ["mtu"]),
    ("a vocabulary of nothing", ["walk", "--set", "tokenizer.vocab_size=0"], {}, ["vocab_size"]),
    ("a tokenizer file that is none", ["tokens", "--set", "tokenizer.kind=file", "--set", "tokenizer.file=t.json"],
     {"t.json": b"{}"}, ["t.json"]),
    ("an unknown model", ["model", "gpt3"], {}, ["gpt3"]),
    ("a config that is not JSON", ["model", "config.json"], {"config.json": b"{"}, ["config.json"]),
    ("a token that is not shown", ["walk", "--token", "100000"], {}, ["--token 100000"]),
    ("a share that is none", ["needs", "--exposed", "five"], {}, ["five"]),
    ("a share above all", ["needs", "--exposed", "500%"], {}, ["500%"]),
    ("a comparison that is none", ["compare", "tokenisers"], {}, ["tokenisers", "tokenizers"]),
    ("a plot of no kind", ["compare", "width", "--plot", "plot.bmp"], {}, ["plot.bmp", "svg"]),
    ("true for a number", ["plan", "--set", "training.micro_batch=true"], {}, ["micro_batch", "true", "number"]),
    ("a key of very many parts", ["plan", "j.toml"], {"j.toml": b"[plan" + b".a" * 100_000 + b"]"}, ["nested too deeply"]),
    ("brackets for a tokenizer", ["tokens", "--set", "tokenizer.file=t.json"], {"t.json": b"[" * 100_000}, ["tokenizer.json"]),
    ("a message too large", ["wire", "--bytes", "1EB"], {}, ["nearest that works: 1125899906842624 B"]),
    ("fewer packets than none", ["export", "pcap", "--out", "x.pcap", "--max-packets", "-1"], {}, ["--max-packets -1", "at least 0"]),
    ("a rate that no figure can say", ["collective", "all_reduce", "--link", "1e-300 b/s"], {}, ["too large or too small"]),
    ("a skew of no draw", ["step", "--skew", "nan"], {}, ["--skew nan", "--routing 1"]),
    ("a placement of one job", ["flows", "--placement", "interleaved"], {}, ["--placement interleaved", "--job"]),
    ("output into no folder", ["step", "--csv", "no/such/folder.csv"], {}, ["folder.csv"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "files", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_clear_line(arguments: list[str], files: dict[str, bytes], words: list[str], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    ended = run(arguments, folder=tmp_path)
    said = ended.stderr.decode()
    assert ended.returncode == 1, said or ended.stdout.decode()[-500:]
    assert len(said.splitlines()) == 1, said
    assert said.startswith("tokenwire: ")
    assert ended.stdout == b""
    for word in words:
        assert word in said
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_standard_input_that_is_empty(tmp_path: Path) -> None:
    ended = run(["text", "-"], folder=tmp_path)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--trace", "--parquet"])
def test_what_is_no_text_goes_to_a_file(option: str, tmp_path: Path) -> None:
    ended = run(["time", option, "-"], folder=tmp_path)
    assert ended.returncode == 1
    assert b"goes to a file" in ended.stderr
    assert not list(tmp_path.iterdir())
