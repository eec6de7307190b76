"""Activations of a chunk of layers, and what stands only while a layer is worked on: gradients on their way, recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Experts, FeedForward, Layer
from tokenwire.plan import Stage
from tokenwire.timeline.memory.experts import rows
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layers import layer_activations, layer_input
from tokenwire.timeline.memory.part import Moment, Part

STANDING: tuple[Moment, ...] = ("loss", "backward")


def recomputed(frame: Frame, chunk: tuple[int, ...]) -> tuple[int, ...]:
    """Return the layers of a chunk of which only the input is kept."""
    if frame.option("recompute_granularity") == "full":
        if frame.option("recompute_method") == "block":
            return chunk[: frame.option("recompute_num_layers") or 0]
        return chunk
    if frame.option("activation_checkpointing", False) or frame.option("activation_checkpoint_mode") == "full":
        return chunk
    return ()


def activations(frame: Frame, chunk: tuple[int, ...]) -> tuple[Part, ...]:
    """Return what a chunk of layers keeps of one micro-batch, equal layers together."""
    again = recomputed(frame, chunk)
    whole = Counter(frame.arch.layers[i] for i in chunk if i not in again)
    out = [part for layer, n in whole.items() for part in _of_layers(frame, layer, n)]
    if again:
        group = frame.option("recompute_num_layers") or 1 if frame.option("recompute_method") == "uniform" else 1
        inputs = -(-len(again) // group)
        out.append(frame.part("activations", "inputs of layers that are recomputed", f"{inputs}·T'·h·e", inputs * layer_input(frame),
                              moments=STANDING, source="Korthikanti et al. 2022, section 5"))  # fmt: skip
    return tuple(out)


def _of_layers(frame: Frame, layer: Layer, count: int) -> Iterator[Part]:
    for one in layer_activations(frame, layer).saved:
        yield Part("activations", f"{one.what}, {count} layers", count * one.size, STANDING, f"{count}·{one.formula}",
                   f"{count}·{one.values}", one.source)  # fmt: skip


def passing(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield what the backward of the last layer of a stage without a head adds to what all micro-batches keep."""
    if not stage.layers:
        return
    layer = frame.arch.layers[stage.chunks[-1][-1] if stage.chunks[-1] else stage.layers[-1]]
    full = recomputed(frame, stage.chunks[-1])
    if full and not stage.has_head:
        group = frame.option("recompute_num_layers") or 1 if frame.option("recompute_method") == "uniform" else 1
        again = group * (layer_activations(frame, layer).total - layer_input(frame))
        yield frame.part("activations", "a layer that is recomputed", f"{group}·layer", again, moments=("backward",),
                         source="Korthikanti et al. 2022, section 5")  # fmt: skip
    if stage.has_head:
        return
    width, tokens = _widest(frame, layer)
    lanes = 2 if getattr(layer.feed_forward, "gated", False) else 1
    size = frame.residual + lanes * tokens * width * frame.item
    yield frame.part("activations", "gradients of the last layer on their way", f"T'·h·e+{lanes}·n·f·e", size, moments=("backward",),
                     more={"n": tokens, "f": width}, source="Korthikanti et al. 2022, figure 2")  # fmt: skip


def _widest(frame: Frame, layer: Layer) -> tuple[int, int]:
    feed = layer.feed_forward
    if isinstance(feed, Experts):
        return feed.width // frame.plan.etp, rows(frame, feed)
    if isinstance(feed, FeedForward):
        return feed.width // frame.plan.tp, frame.tokens
    return frame.arch.hidden_size, frame.outside
