"""Why tokenization matters to the network: bytes sent per word, tokenizer by tokenizer and method by method.

Symbols: phi tokens per word (fertility), V vocabulary, h hidden size, W(V) bytes that all GPUs send in one step, B sequences of s
tokens in the global batch.

    bytes per word = phi · W(V) / (B·s)

phi falls as V grows. What a step sends grows with V where parameters or gradients travel (data, FSDP: the V·h rows of the
embedding and of the head), and hardly where activations do (tensor, pipeline).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenwire.errors import MissingExtra
from tokenwire.figures import Figure
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.comparison import Comparison
from tokenwire.report.comparison.methods import METHODS, explained, plan_of
from tokenwire.report.comparison.volume import SENT, Volume, volume
from tokenwire.tokens import TokenizerConfig, TokenStatistics, build_tokenizer, statistics
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenwire.journey import Journey
    from tokenwire.model.architecture import Architecture

CHOICES: dict[str, TokenizerConfig] = {
    "bytes": TokenizerConfig(kind="bytes"),
    "characters": TokenizerConfig(kind="characters"),
    "BPE 1k": TokenizerConfig(kind="bpe", vocab_size=1_000),
    "BPE 8k": TokenizerConfig(kind="bpe", vocab_size=8_000),
    "BPE 32k": TokenizerConfig(kind="bpe", vocab_size=32_000),
    "cl100k": TokenizerConfig(kind="cl100k"),
    "o200k": TokenizerConfig(kind="o200k"),
}
"""The tokenizers that are compared: trained ones are trained on the journey's text."""


@dataclass(frozen=True)
class _Choice:
    name: str
    trained: bool
    statistics: TokenStatistics
    volumes: dict[str, Volume]

    def per_word(self, method: str) -> float:
        return self.statistics.fertility * self.volumes[method].per_token


def compare_tokenizers(journey: Journey, gpus: int) -> Comparison:
    """Return bytes sent per word of the journey's text; the model's body stays, its vocabulary changes.

    ``gpus`` is n of every method (the most up to it that works). Raises ``InputError`` where no plan of a method works.
    """
    import polars as pl

    notes: list[str] = []
    measured = _measured(journey, notes)
    arch = journey.model().architecture
    found = [
        _Choice(name, trained, of, _volumes(journey, replace(arch, vocabulary_size=of.vocabulary_size), gpus))
        for name, trained, of in measured
    ]
    frame = pl.DataFrame([_row(choice) for choice in found])
    notes.extend(_notes(found))
    return Comparison(
        "tokenizers",
        f"bytes sent per word of {journey.text().name}: {arch.name}, one method over up to {gpus} GPUs",
        frame,
        (
            ("tokenizer", "tokenizer"), ("vocabulary_size", "vocabulary"), ("fertility", "tokens/word"),
            *((f"{name}_bytes_per_word", method.title) for name, method in METHODS.items()),
        ),
        {"tokenizer": "", "vocabulary_size": "1", "fertility": "1", **{f"{name}_bytes_per_word": "B" for name in METHODS}},
        tuple(f"{name}_bytes_per_word" for name in METHODS),
        tuple(_formulas(found)),
        (f"phi: tokens per word; W: bytes that all GPUs send in a step; B·s: tokens per step. {SENT}", *notes),
        Chart(
            f"Bytes sent per word, {arch.name}", "bars", "tokenizer (vocabulary)", "bytes per word, all GPUs together",
            tuple(f"{choice.name} ({choice.statistics.vocabulary_size:,})" for choice in found),
            tuple(Series(method.title, tuple(c.per_word(name) for c in found)) for name, method in METHODS.items()),
        ),
    )  # fmt: skip


def _measured(journey: Journey, notes: list[str]) -> list[tuple[str, bool, TokenStatistics]]:
    """Return (name, whether trained on the text, statistics); of trained ones that this text makes alike one row is left."""
    text = journey.text()
    out: list[tuple[str, bool, TokenStatistics]] = []
    for name, config in CHOICES.items():
        try:
            tokenizer = build_tokenizer(config, text.content)
        except MissingExtra as error:
            notes.append(f"{name} is left out: {error}")
            continue
        of = statistics(text, tokenizer, tokenizer.encode(text.content))
        if config.kind == "bpe" and of.vocabulary_size < config.vocab_size:
            notes.append(f"{name}: this text has pairs to merge for {of.vocabulary_size:,} entries only")
            name = f"BPE {of.vocabulary_size:,}"
            if any(there == name for there, _, _ in out):
                continue
        out.append((name, config.kind == "bpe", of))
    return out


def _volumes(journey: Journey, arch: Architecture, gpus: int) -> dict[str, Volume]:
    training, wire = journey.config.training, journey.config.wire
    return {name: volume(arch, plan_of(method, arch, training, gpus, journey.config.plan), wire) for name, method in METHODS.items()}


def _row(choice: _Choice) -> dict[str, object]:
    of = choice.statistics
    return {
        "tokenizer": choice.name, "vocabulary_size": of.vocabulary_size, "tokens": of.tokens, "words": of.words,
        "fertility": of.fertility,
        **{f"{name}_bytes_per_word": choice.per_word(name) for name in METHODS},
        **{f"{name}_bytes_per_token": choice.volumes[name].per_token for name in METHODS},
        **{f"{name}_step_sent_bytes": choice.volumes[name].sent_bytes for name in METHODS},
        **{f"{name}_gpus": choice.volumes[name].gpus for name in METHODS},
    }  # fmt: skip


def _formulas(found: list[_Choice]) -> list[Figure]:
    shown = next((choice for choice in found if choice.trained and choice.statistics.vocabulary_size > 1_000), found[-1])
    out = []
    for name, method in METHODS.items():
        volume = shown.volumes[name]
        training = volume.plan.training
        out.append(
            Figure(
                f"{method.title}, {shown.name}: bytes per word", shown.per_word(name), "B", "phi · W(V) / (B·s)",
                f"{shown.statistics.fertility:.3f}·{format_bytes(volume.sent_bytes)}"
                f"/({training.global_batch:,}·{training.sequence_length:,})",
                "tokenwire.step", explained(method, volume.plan),
            )
        )  # fmt: skip
        out.extend(_cost_of_rows(found, name))
    return out


def _cost_of_rows(found: list[_Choice], method: str) -> Iterator[Figure]:
    """Yield what a thousand more entries of the vocabulary cost a token, from the smallest and the largest one here."""
    least = min(found, key=lambda choice: choice.statistics.vocabulary_size)
    most = max(found, key=lambda choice: choice.statistics.vocabulary_size)
    V1, V2 = least.statistics.vocabulary_size, most.statistics.vocabulary_size
    if V1 == V2:
        return
    low, high = least.volumes[method], most.volumes[method]
    yield Figure(
        f"{METHODS[method].title}: what a thousand more rows cost per token", 1000 * (high.per_token - low.per_token) / (V2 - V1), "B",
        "1000·ΔW/(B·s)/ΔV", f"1000·({format_bytes(high.sent_bytes)} - {format_bytes(low.sent_bytes)})/{low.tokens:,}/{V2 - V1:,}",
        because=f"between {least.name} and {most.name}",
    )  # fmt: skip


def _notes(found: list[_Choice]) -> list[str]:
    out = []
    for name, method in METHODS.items():
        best = min(found, key=lambda choice: choice.per_word(name))
        worst = max(found, key=lambda choice: choice.per_word(name))
        times = worst.per_word(name) / best.per_word(name) if best.per_word(name) else 1.0
        pays = "rows" if worst.statistics.vocabulary_size > best.statistics.vocabulary_size else "tokens"
        sizes = {choice.volumes[name].gpus for choice in found}
        over = f" (over {', '.join(map(str, sorted(sizes)))} GPUs)"
        out.append(
            f"{method.title}{over}: the balance lies at {best.name}; {worst.name} pays {times:.1f} times as much, in {pays}"
        )
    return out
