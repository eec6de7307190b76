"""What the embedding dimension asks of the network: hidden sizes from 256 to 16,384, layers and heads scaled along.

Layers and heads grow with the width as in real models: h/128 of each (GPT-3 175B: 12,288 with 96 and 96; Llama 3 8B: 4,096
with 32 and 32; Llama 3.1 405B: 16,384 with 126 and 128), but never fewer than 8, so that 8 GPUs can share them. The
feed-forward width and the KV heads keep their ratios to h and to the heads. Vocabulary, batch and sequence stay.

Source: Brown et al. 2020, table 2.1; Llama Team 2024, table 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.model import flops_per_token, parameters
from tokenwire.model.architecture import Architecture, Attention, FeedForward
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.comparison import Comparison
from tokenwire.report.comparison.methods import METHODS, explained, plan_of
from tokenwire.report.comparison.volume import SENT, Volume, volume
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    from tokenwire.journey import Journey

WIDTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""The hidden sizes that are compared."""

LEAST = 8
"""Fewest layers and heads."""


def depth_of(h: int) -> int:
    """Return layers, and heads, for a hidden size.

    >>> depth_of(256), depth_of(4096), depth_of(16384)
    (8, 32, 128)
    """
    return max(LEAST, h // 128)


def widened(arch: Architecture, h: int) -> Architecture:
    """Return a model of the same family with hidden size ``h`` and layers, heads and feed-forward scaled along.

    Raises ``InputError`` for a model whose first layer is not attention with a dense feed-forward part.
    """
    layer = arch.layers[0] if arch.layers else None
    mixer = layer.mixer if layer else None
    wide = layer.feed_forward if layer else None
    if layer is None or not isinstance(mixer, Attention) or not isinstance(wide, FeedForward):
        raise InputError(f"model {arch.name}", rule="widths are compared for models of attention and dense feed-forward layers",
                         nearest="model.preset = llama-3.1-8b")  # fmt: skip
    heads = depth_of(h)
    kv_heads = max(1, heads * mixer.kv_heads // mixer.heads)
    ratio = wide.width / arch.hidden_size
    scaled = replace(
        layer, mixer=replace(mixer, heads=heads, kv_heads=kv_heads, head_dim=h // heads, value_head_dim=None),
        feed_forward=replace(wide, width=round(ratio * h / 64) * 64),
    )  # fmt: skip
    return replace(
        arch, name=f"{arch.family} {h:,}", hidden_size=h, layers=(scaled,) * depth_of(h), embedding_size=None, mtp_layers=0
    )


def compare_width(journey: Journey, gpus: int) -> Comparison:
    """Return bytes sent per token for each width and method, over ``gpus`` GPUs (the most up to it that work)."""
    import polars as pl

    training, wire = journey.config.training, journey.config.wire
    base = journey.model().architecture
    models = [widened(base, h) for h in WIDTHS]
    volumes = [
        {name: volume(arch, plan_of(method, arch, training, gpus, journey.config.plan), wire) for name, method in METHODS.items()} for arch in models
    ]
    rows = [_row(arch, of, training.sequence_length) for arch, of in zip(models, volumes, strict=True)]
    return Comparison(
        "width",
        f"bytes sent per token by width: {base.family}, V = {base.vocabulary_size:,}, one method over up to {gpus} GPUs",
        pl.DataFrame(rows),
        (
            ("hidden_size", "hidden"), ("layers", "layers"), ("parameters", "parameters"),
            *((f"{name}_bytes_per_token", method.title) for name, method in METHODS.items()),
        ),
        {"hidden_size": "1", "layers": "1", "parameters": "short", **{f"{name}_bytes_per_token": "B" for name in METHODS}},
        (),
        tuple(_formulas(models, volumes)),
        (f"W: bytes that all GPUs send in a step; B·s: tokens per step. {SENT}", *_notes(rows)),
        Chart(
            f"Bytes sent per token by width, {base.family}", "lines", "hidden size", "bytes per token, all GPUs together",
            tuple(f"{h:,}" for h in WIDTHS),
            tuple(
                Series(method.title, tuple(of[name].per_token for of in volumes)) for name, method in METHODS.items()
            ),
            tuple(float(h) for h in WIDTHS),
        ),
    )  # fmt: skip


def _row(arch: Architecture, volumes: dict[str, Volume], s: int) -> dict[str, object]:
    flops = flops_per_token(arch, s).value
    mixer = arch.layers[0].mixer
    return {
        "hidden_size": arch.hidden_size, "layers": len(arch.layers),
        "heads": mixer.heads if isinstance(mixer, Attention) else 0, "parameters": parameters(arch).total,
        "flops_per_token": flops,
        **{f"{name}_bytes_per_token": of.per_token for name, of in volumes.items()},
        **{f"{name}_bytes_per_megaflop": of.per_token / flops * 1e6 for name, of in volumes.items()},
        **{f"{name}_gpus": of.gpus for name, of in volumes.items()},
    }  # fmt: skip


def _formulas(models: list[Architecture], volumes: list[dict[str, Volume]]) -> list[Figure]:
    arch, of = models[len(models) // 2], volumes[len(models) // 2]
    out = []
    for name, method in METHODS.items():
        training = of[name].plan.training
        out.append(
            Figure(
                f"{method.title}, h = {arch.hidden_size:,}: bytes per token", of[name].per_token, "B", "W / (B·s)",
                f"{format_bytes(of[name].sent_bytes)}/({training.global_batch:,}·{training.sequence_length:,})",
                "tokenwire.step", explained(method, of[name].plan),
            )
        )  # fmt: skip
    return out


def _notes(rows: list[dict[str, object]]) -> list[str]:
    first, last = rows[0], rows[-1]
    out = []
    for name, method in METHODS.items():
        key = f"{name}_bytes_per_megaflop"
        before, after = float(str(first[key])), float(str(last[key]))
        out.append(
            f"{method.title}: {format_bytes(before)} for each million FLOPs at h = {first['hidden_size']:,}, "
            f"{format_bytes(after)} at h = {last['hidden_size']:,}"
        )
    return out
