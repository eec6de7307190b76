"""The verb text, as a user types it."""

from __future__ import annotations

import json

from tests.house.running import run


def test_text_from_standard_input():
    told = run(["text", "--set", "text.source=-", "--json"], given=b"due parole\n")
    assert told.returncode == 0, told.stderr
    facts = json.loads(told.stdout)
    assert (facts["words"], facts["bytes"], facts["verses"]) == (2, 11, 1)


def test_a_file_with_a_byte_order_mark(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfuno\r\ndue\r\n")
    facts = json.loads(run(["text", "t.txt", "--json"], folder=tmp_path).stdout)
    assert (facts["verses"], facts["source_bytes"], facts["bytes"]) == (2, 13, 8)


def test_show_prints_the_part_itself():
    told = run(["text", "--verse", "Inferno I 1-2", "--show"])
    assert told.stdout.decode() == "Nel mezzo del cammin di nostra vita\nmi ritrovai per una selva oscura,\n"


def test_a_journey_file_is_read_as_one(tmp_path):
    (tmp_path / "j.toml").write_text('[text]\nverse = "Inferno I 1-3"\n')
    assert json.loads(run(["text", "j.toml", "--json"], folder=tmp_path).stdout)["verses"] == 3
