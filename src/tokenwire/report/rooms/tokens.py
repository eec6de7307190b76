"""The tokens of a journey: what tokenization did, some tokens, and the sequences and batches they are packed into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.files import whole_or_nothing
from tokenwire.report.terminal import shortened, table, visible
from tokenwire.tokens import bytes_read, pack
from tokenwire.units import counted

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey

SHOWN = 24
"""Tokens shown where no part was asked for."""
LETTERS = 25
"""Letters shown of a token."""


def facts(journey: Journey, verse: str | None = None) -> dict[str, Any]:
    """Return the figures of tokenization, packing and batches, and the first tokens of a part."""
    statistics, training = journey.tokens(), journey.config.training
    packing = pack(journey.encoding(), journey.text(), training.sequence_length)
    sequences = len(packing.ids)
    storage = bytes_read(
        sequence_length=training.sequence_length, global_batch=training.global_batch, index_bytes=statistics.index_bytes
    )
    return {
        **asdict(statistics),
        "text": journey.text().name,
        "lossless": journey.tokenizer().lossless,
        "packing": {
            "sequence_length": training.sequence_length, "sequences": sequences, "padding": packing.padding,
            "documents": len(packing.boundaries), "global_batch": training.global_batch,
            "micro_batch": training.micro_batch, "steps": -(-sequences // training.global_batch),
            "tokens_per_step": training.sequence_length * training.global_batch, "storage": storage.as_dict(),
            "storage_text": storage.derivation,
        },
        "first": table_of(journey, verse, SHOWN).to_dicts(),
    }  # fmt: skip


def table_of(journey: Journey, verse: str | None = None, most: int | None = None) -> pl.DataFrame:
    """Return one row a token of the text, of a part or of its first: index, id, text, start, end (bytes), in_vocabulary."""
    import numpy as np
    import polars as pl

    encoding, tokenizer = journey.encoding(), journey.tokenizer()
    first, last = 0, len(encoding)
    if verse is not None:
        from tokenwire.text import select

        low, high = select(journey.text(), verse).byte_range
        first = int(np.searchsorted(encoding.ends, low, side="right"))
        last = int(np.searchsorted(encoding.starts, high, side="left"))
    here = slice(first, max(first, last if most is None else min(last, first + most)))
    data = journey.text().data
    starts, ends, ids = encoding.starts[here], encoding.ends[here], encoding.ids[here]
    names = {int(token): tokenizer.token_text(int(token)) for token in np.unique(ids)}
    texts = [data[a:b].decode("utf-8", "replace") for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return pl.DataFrame(
        {"index": np.arange(first, first + len(ids)), "id": ids, "text": texts, "start": starts, "end": ends,
         "in_vocabulary": [names[token] for token in ids.tolist()]}
    )  # fmt: skip


def save_tokenizer(journey: Journey, path: str) -> None:
    """Write the tokenizer.json. Raises ``InputError`` where the kind has none."""
    saved = journey.tokenizer().saved()
    if saved is None:
        kind = journey.config.tokenizer.kind
        raise InputError(f"--save {path}", rule=f"a tokenizer of kind {kind!r} has no tokenizer.json", nearest="kind bpe")
    with whole_or_nothing(path) as file:
        file.write(saved)


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the figures as tables."""
    asked = facts["vocabulary_size"]
    rows = [
        ("tokenizer", facts["tokenizer"], "" if facts["lossless"] else "decoding loses white space or case"),
        ("vocabulary", f"{asked:,} ids", f"{facts['used']:,} of them occur; stored as {facts['index_dtype']}"),
        ("tokens", f"{facts['tokens']:,}", f"{facts['entropy_bits']:.2f} bits of entropy a token"),
        ("words", f"{facts['words']:,}", f"fertility {facts['fertility']:.3f} tokens a word"),
        ("bytes", f"{facts['bytes']:,} B", f"{facts['bytes_per_token']:.3f} B a token"),
    ]
    yield table(rows, ["count of", "value", "that is"], right=["value"], title=facts["text"])
    packing = facts["packing"]
    yield (
        f"packed: {counted(packing['sequences'], 'sequence')} of {packing['sequence_length']:,} tokens from "
        f"{counted(packing['documents'], 'document')}, {packing['padding']:,} places empty"
    )
    yield (
        f"a step: {packing['global_batch']:,} sequences = {packing['tokens_per_step']:,} tokens; "
        f"the text lasts {counted(packing['steps'], 'step')}"
    )
    yield f"storage a step: {packing['storage_text']}"
    tokens = [
        (row["index"], row["id"], _line(row["text"]), f"{row['start']}-{row['end']}", _line(row["in_vocabulary"]))
        for row in facts["first"]
    ]
    yield table(tokens, ["token", "id", "text", "bytes", "in the vocabulary"], right=["token", "id", "bytes"])


def _line(text: str) -> str:
    return shortened(visible(text), LETTERS)
