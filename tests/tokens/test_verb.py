"""The verb tokens, as a user types it."""

from __future__ import annotations

import json

import polars as pl

from tests.house.running import run


def test_json_has_the_fields_that_programs_rely_on():
    facts = json.loads(run(["tokens", "--json"]).stdout)
    assert {"tokens", "vocabulary_size", "bytes", "words", "fertility"} <= set(facts)
    assert facts["fertility"] == facts["tokens"] / facts["words"]
    assert facts["vocabulary_size"] == 1000


def test_a_table_of_all_tokens(tmp_path):
    told = run(["tokens", "--verse", "Inferno I 1", "--csv", "t.csv"], folder=tmp_path)
    assert told.returncode == 0, told.stderr
    table = pl.read_csv(tmp_path / "t.csv")
    assert "".join(table["text"].to_list()) == "Nel mezzo del cammin di nostra vita"
    assert table["end"].to_list()[:-1] == table["start"].to_list()[1:]


def test_a_saved_tokenizer_gives_the_same_tokens(tmp_path):
    first = json.loads(run(["tokens", "--save", "mine.json", "--json"], folder=tmp_path).stdout)
    again = json.loads(run(["tokens", "--set", "tokenizer.file=mine.json", "--json"], folder=tmp_path).stdout)
    assert [token["id"] for token in first["first"]] == [token["id"] for token in again["first"]]
    assert first["tokens"] == again["tokens"]


def test_what_cannot_be_saved_is_one_line(tmp_path):
    told = run(["tokens", "--set", "tokenizer.kind=bytes", "--save", "mine.json"], folder=tmp_path)
    assert told.returncode == 1
    assert told.stderr.decode().count("\n") == 1
    assert not (tmp_path / "mine.json").exists()


def test_a_text_file_is_tokenized(tmp_path):
    (tmp_path / "t.txt").write_text("ciao mondo", "utf-8")
    facts = json.loads(run(["tokens", "t.txt", "--set", "tokenizer.kind=characters", "--json"], folder=tmp_path).stdout)
    assert (facts["tokens"], facts["words"]) == (10, 2)


def test_a_giant_token_takes_one_line(tmp_path):
    (tmp_path / "t.txt").write_text("ciao " + "x" * 50_000, "utf-8")
    told = run(["tokens", "t.txt"], folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.decode()) < 10_000


def test_a_place_of_no_letters_is_refused():
    for verb in ("text", "tokens", "walk"):
        told = run([verb, "--verse", ""])
        assert told.returncode == 1
        assert "is not a place" in told.stderr.decode()
