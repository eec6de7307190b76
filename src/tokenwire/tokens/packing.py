"""Tokens to sequences to batches, as Megatron's GPT data set packs them.

Symbols: s tokens a sequence, B sequences a global batch, b a micro-batch, D data-parallel replicas.

The documents of a text are laid end to end and cut every s tokens; a sequence may hold the end of one document and the
beginning of the next, and remembers where. Labels are the same tokens one place on, so storage is asked for s + 1
tokens a sequence (Megatron-LM, megatron/core/datasets/gpt_dataset.py). Replica r of a micro-step takes the r-th b
sequences (megatron/training/datasets/data_samplers.py, MegatronPretrainingSampler).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.text import Text
from tokenwire.tokens.encoding import Encoding, Ids

PADDING = -1
"""Stands where the last sequence has no token."""


@dataclass(frozen=True)
class Packing:
    """Sequences of one length: ``ids`` int32[n, s] (``PADDING`` at the end), and which document each token is of.

    ``document`` int32[n, s] (``PADDING`` likewise); ``boundaries`` int64[d] are the places in the run of all tokens at
    which a document begins; ``tokens`` counts those that are no padding.
    """

    ids: Ids
    document: Ids
    boundaries: npt.NDArray[np.int64]
    tokens: int

    @property
    def padding(self) -> int:
        """Return how many places of the last sequence are empty."""
        return int(self.ids.size) - self.tokens


def pack(encoding: Encoding, text: Text, sequence_length: int, *, end_of_document: int | None = None) -> Packing:
    """Return the tokens of a text in sequences of ``sequence_length``; ``end_of_document`` is put after each document.

    >>> from tokenwire.text import read_text
    >>> from tokenwire.tokens.plain import Bytes
    >>> text = read_text()
    >>> packing = pack(Bytes().encode(text.content), text, 1000)
    >>> packing.ids.shape, packing.padding
    ((6, 1000), 741)
    """
    if sequence_length < 1:
        raise InputError(f"sequence_length = {sequence_length}", where="[training]", rule="must be at least 1", nearest="1")
    starts = _document_starts(encoding, text)
    ids, owner = encoding.ids, np.zeros(len(encoding), dtype=np.int32)
    owner[starts[1:]] = 1
    owner = np.cumsum(owner, dtype=np.int32)
    if end_of_document is not None:
        stops = np.append(starts[1:], len(ids))
        ids = np.insert(ids, stops, end_of_document)
        owner = np.insert(owner, stops, np.arange(len(starts), dtype=np.int32))
        starts = starts + np.arange(len(starts))
    rows = -(-len(ids) // sequence_length)
    return Packing(
        ids=_filled(ids, rows, sequence_length), document=_filled(owner, rows, sequence_length), boundaries=starts,
        tokens=len(ids),
    )  # fmt: skip


def _document_starts(encoding: Encoding, text: Text) -> npt.NDArray[np.int64]:
    if not len(encoding):
        return np.zeros(0, dtype=np.int64)
    # Documents are counted in characters, tokens in bytes.
    edges = [len(text.content[:start].encode("utf-8")) for start, _ in text.documents] if len(text.documents) > 1 else [0]
    found = np.searchsorted(encoding.starts, np.asarray(edges), side="left")
    return np.array(sorted(set(found.tolist())), dtype=np.int64)


def _filled(values: Ids, rows: int, length: int) -> Ids:
    out = np.full(rows * length, PADDING, dtype=np.int32)
    out[: len(values)] = values
    return out.reshape(rows, length)


def batches(sequences: int, *, global_batch: int, micro_batch: int, replicas: int) -> Ids:
    """Return which sequence goes where: int32[steps, micro_batches, replicas, micro_batch].

    The last batch may lack sequences: those places are ``PADDING``.

    >>> batches(8, global_batch=8, micro_batch=2, replicas=2)[0].tolist()
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    together = micro_batch * replicas
    if min(global_batch, micro_batch, replicas) < 1 or global_batch % together:
        nearest = max(together, round(global_batch / max(together, 1)) * together)
        raise InputError(
            f"global_batch = {global_batch}", where="[training]",
            rule=f"must be a multiple of micro_batch x replicas = {micro_batch} x {replicas}", nearest=str(nearest),
        )  # fmt: skip
    steps = -(-sequences // global_batch)
    out = np.arange(steps * global_batch, dtype=np.int32)
    out[sequences:] = PADDING
    return out.reshape(steps, global_batch // together, replicas, micro_batch)


def bytes_read(*, sequence_length: int, global_batch: int, index_bytes: int) -> Figure:
    """Return what storage delivers a step, over all replicas: B sequences of s + 1 stored ids.

    >>> bytes_read(sequence_length=256, global_batch=16, index_bytes=2).derivation
    'B·(s+1)·index = 16·257·2 B = 8.22 kB'
    """
    return Figure(
        "read from storage a step", global_batch * (sequence_length + 1) * index_bytes, "B", "B·(s+1)·index",
        f"{global_batch:,}·{sequence_length + 1:,}·{index_bytes} B",
        "Megatron-LM, megatron/core/datasets/gpt_dataset.py: s + 1 tokens a sample, for inputs and labels",
        "each replica reads its own sequences once; other tensor ranks get them by broadcast",
    )  # fmt: skip


def documents_of(packing: Packing, sequence: int) -> Sequence[int]:
    """Return the documents that a sequence holds tokens of, in order."""
    found = np.unique(packing.document[sequence])
    return [int(document) for document in found if document != PADDING]
