"""The text room: the built-in canto, mark-up, places, encodings, statistics."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.text import TextConfig, opening, read_text, select, statistics, words
from tokenwire.text.decoding import decoded
from tokenwire.text.markup import parsed

COMMEDIA = Path(__file__).parents[3] / "shared" / "data" / "commedia" / "commedia.it.txt"
needs_commedia = pytest.mark.skipif(not COMMEDIA.exists(), reason="the whole Commedia is not here")


@pytest.fixture(scope="module")
def commedia():
    return read_text(TextConfig(source=str(COMMEDIA)))


def test_the_canto_has_its_verses():
    text = read_text()
    assert len(text.verses) == 136
    assert text.verse_text(text.verses[0]) == "Nel mezzo del cammin di nostra vita"
    assert text.verse_text(text.verses[-1]) == "Allor si mosse, e io li tenni dietro."
    # 45 terzine and the verse that closes the canto.
    assert text.verses[-1].stanza == 46
    assert "#" not in text.content


@needs_commedia
def test_the_canto_is_that_of_the_whole_work(commedia):
    assert select(commedia, "Inferno I").content.rstrip() == read_text().content.rstrip()


@needs_commedia
def test_the_whole_work_has_its_cantos_and_verses(commedia):
    assert hashlib.sha256(COMMEDIA.read_bytes()).hexdigest().startswith("72461b82")
    assert (len(commedia.verses), len(commedia.documents)) == (14_233, 100)
    counts = {name: len(select(commedia, name).verses) for name in ("Inferno", "Purgatorio", "Paradiso")}
    assert counts == {"Inferno": 4_720, "Purgatorio": 4_755, "Paradiso": 4_758}
    assert select(commedia, "Paradiso XXXIII 145").content == "l’amor che move il sole e l’altre stelle."
    # A plain count of white-space words, less those without a letter.
    assert len(words(commedia.content)) == sum(any(c.isalnum() for c in word) for word in commedia.content.split())


@needs_commedia
@pytest.mark.parametrize("place", ["Inferno III 1-9", "inferno 3 1-9", "Inferno, canto III, 1–9", "Inferno III: 1 - 9"])
def test_places_can_be_written_in_many_ways(commedia, place):
    part = select(commedia, place)
    assert [verse.number for verse in part.verses] == list(range(1, 10))
    assert {verse.canto for verse in part.verses} == {"Inferno III"}


@needs_commedia
@pytest.mark.parametrize("place", ["Inferno III 1-9", "Paradiso XXXIII 142-145", "Purgatorio", "Inferno XX"])
def test_a_part_knows_its_bytes(commedia, place):
    part = select(commedia, place)
    first, last = part.byte_range
    assert commedia.data[first:last] == part.data
    assert all(part.verse_text(verse) and "\n" not in part.verse_text(verse) for verse in part.verses)


@needs_commedia
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("Inferno XL", "not Inferno XL"),
        ("Infrno I", '"Inferno I"'),
        ("1-9", "names 100 cantos"),
        ("Inferno III 9-1", "verses 1 to 136"),
        ("Inferno III 0", "verses 1 to 136"),
        ("Inferno I 1-200", '"Inferno I 1-136"'),
        ("", "is not a place"),
        ("x y z", "is not a place"),
        ("Inferno 1-9", '"Inferno I 1-9"'),
        ("Inferno 5000", "not Inferno 5000"),
        ("Inferno I 1 2 3", "is not a place"),
    ],
)
def test_a_place_that_is_not_there_is_one_line(commedia, place, says):
    with pytest.raises(InputError) as caught:
        select(commedia, place)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_without_the_asked_canto():
    with pytest.raises(InputError, match="has Inferno I, not Paradiso XXXIII"):
        read_text(TextConfig(verse="Paradiso XXXIII"))


def test_a_plain_text_is_kept_to_the_last_byte(tmp_path):
    file = tmp_path / "plain.txt"
    file.write_text("# a heading of another kind\n\n  one\n\ntwo  \nthree", "utf-8")
    text = read_text(TextConfig(source=str(file)))
    assert text.content == file.read_text("utf-8")
    assert [(verse.number, verse.stanza) for verse in text.verses] == [(1, 1), (2, 2), (3, 3), (4, 3)]
    assert select(text, "2-3").content == "  one\n\ntwo  "
    with pytest.raises(InputError, match="has no cantos"):
        select(text, "Inferno I")


@pytest.mark.parametrize("encoded", [b"\xef\xbb\xbfch\xc3\xa9\r\nla\r\n", b"ch\xc3\xa9\nla\n", b"ch\xc3\xa9\rla\r"])
def test_byte_order_mark_and_line_ends(tmp_path, encoded):
    (tmp_path / "t.txt").write_bytes(encoded)
    text = read_text(TextConfig(source=str(tmp_path / "t.txt")))
    assert text.content == "ché\nla\n"
    assert text.source_bytes == len(encoded)


def test_another_encoding_names_byte_offset_and_option(tmp_path):
    (tmp_path / "t.txt").write_bytes("perché".encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_text(TextConfig(source=str(tmp_path / "t.txt")))
    assert "byte 0xe9 at offset 5 is not valid utf-8" in str(caught.value)
    assert "--encoding latin-1" in str(caught.value)
    assert read_text(TextConfig(source=str(tmp_path / "t.txt"), encoding="latin-1")).content == "perché"


@pytest.mark.parametrize(
    ("data", "encoding", "says"),
    [
        (b"", "utf-8", "is empty"),
        (b" \n\n\t", "utf-8", "is empty"),
        ("ciao".encode("utf-16"), "utf-8", "--encoding utf-16"),
        (b"x", "klingon", "no text encoding"),
        (b"x", "rot13", "no text encoding"),
        (b"x", "base64", "no text encoding"),
        (b"ab\x00cd", "utf-8", "NUL character at offset 2"),
        (b"# Inferno, canto I\n\n", "utf-8", "no verses"),
        (b"odd", "utf-16-le", "utf-8"),
    ],
)
def test_what_is_no_text_is_one_line(tmp_path, data, encoding, says):
    (tmp_path / "t.txt").write_bytes(data)
    with pytest.raises(InputError, match=says):
        read_text(TextConfig(source=str(tmp_path / "t.txt"), encoding=encoding))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_text(TextConfig(source=str(tmp_path / "nothing.txt")))
    with pytest.raises(InputError, match="is a folder"):
        read_text(TextConfig(source=str(tmp_path)))


def test_documents_tile_the_content():
    content, verses, documents = parsed("# Inferno, canto I\n\na\nb\n\n# Inferno, canto II\n\nc\n")
    assert content == "a\nb\n\nc\n"
    assert documents == ((0, 5), (5, 7))
    assert [(verse.canto, verse.number, content[verse.start : verse.end]) for verse in verses] == [
        ("Inferno I", 1, "a"),
        ("Inferno I", 2, "b"),
        ("Inferno II", 1, "c"),
    ]


@given(st.text(alphabet="ab \n’è#,.", max_size=80))
def test_verses_and_words_lie_in_the_content(raw):
    content, verses, _ = parsed(raw)
    assert all(content[verse.start : verse.end].strip() for verse in verses)
    assert sum(content[a:b].count(c) for a, b in words(content) for c in "abè") == sum(map(content.count, "abè"))


@given(st.binary(max_size=60))
def test_any_bytes_are_text_or_one_line(data):
    try:
        shown = decoded(data, "utf-8", what="text")
    except InputError as error:
        shown = str(error).replace("\n", "\r")
    assert "\r" not in shown


def test_counts_worked_by_hand(tmp_path):
    # 3 verses in 2 stanzas; words: Uno due due tre tre tre; types: uno, due, tre.
    (tmp_path / "t.txt").write_text("Uno due\ndue, tre\n\ntre - tre\n", "utf-8")
    counted = statistics(read_text(TextConfig(source=str(tmp_path / "t.txt"))))
    assert (counted.verses, counted.stanzas, counted.words, counted.types, counted.once) == (3, 2, 6, 3, 1)
    assert counted.most_common[0] == ("tre", 3)


def test_opening_is_a_terzina():
    assert opening(read_text(), 3).content.count("\n") == 2
