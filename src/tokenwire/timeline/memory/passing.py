"""Activations of a chunk of layers, and what stands only while a layer is worked on: gradients on their way, recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Experts, FeedForward, Layer
from tokenwire.plan import Stage
from tokenwire.timeline.memory.experts import SOURCE as EXPERTS
from tokenwire.timeline.memory.experts import dispatching, rows
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layers import everything, layer_activations, layer_input
from tokenwire.timeline.memory.part import STANDING, Part
from tokenwire.timeline.memory.saved import Saved
from tokenwire.timeline.recompute import again


def recomputed(frame: Frame, stage: Stage, number: int = -1) -> tuple[int, ...]:
    """Return the layers of chunk ``number`` of a stage of which only the input is kept; the last chunk where none is named."""
    chunk = stage.chunks[number]
    before = sum(len(ahead) for ahead in stage.chunks[:number])
    rules = again(frame.plan.config, chunk, before)
    return tuple(layer for layer, redo in zip(chunk, rules, strict=True) if redo.rule.startswith("layer"))


def activations(frame: Frame, stage: Stage, number: int) -> tuple[Part, ...]:
    """Return what chunk ``number`` of a stage keeps of one micro-batch, equal layers together."""
    inputs_of = recomputed(frame, stage, number)
    layers = Counter(frame.arch.layers[i] for i in stage.chunks[number] if i not in inputs_of)
    whole: Counter[tuple[Saved, ...]] = Counter()
    for layer, n in layers.items():
        whole[layer_activations(frame, layer).saved] += n
    out = [part for kept, n in whole.items() for part in _of_layers(kept, n)]
    if inputs_of:
        group = frame.option("recompute_num_layers") or 1 if frame.option("recompute_method") == "uniform" else 1
        inputs = -(-len(inputs_of) // group)
        out.append(frame.part("activations", "inputs of layers that are recomputed", f"{inputs}·T'·h·e", inputs * layer_input(frame),
                              moments=STANDING, source="Korthikanti et al. 2022, section 5"))  # fmt: skip
    return tuple(out)


def _of_layers(kept: tuple[Saved, ...], count: int) -> Iterator[Part]:
    for one in kept:
        yield Part("activations", f"{one.what}, {count} layers", count * one.size, STANDING, f"{count}·{one.formula}",
                   f"{count}·{one.values}", one.source)  # fmt: skip


def passing(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield what the backward of a stage's last layer adds to what all micro-batches keep."""
    if not stage.layers:
        return
    layer = frame.arch.layers[stage.chunks[-1][-1] if stage.chunks[-1] else stage.layers[-1]]
    if isinstance(layer.feed_forward, Experts):
        size, formula = dispatching(frame, layer.feed_forward)
        yield frame.part("activations", "rows of the experts on their way back", formula, size, moments=("forward",),
                         more={"R": rows(frame, layer.feed_forward) // frame.plan.etp}, source=EXPERTS)  # fmt: skip
    if recomputed(frame, stage) or frame.option("activation_checkpoint_mode") == "selective":
        group = frame.option("recompute_num_layers") or 1 if frame.option("recompute_method") == "uniform" else 1
        whole_layers = group * (sum(one.size for one in everything(frame, layer)) - layer_input(frame))
        yield frame.part("activations", "a layer that is recomputed", f"{group}·layer", whole_layers, moments=("backward",),
                         source="Korthikanti et al. 2022, section 5")  # fmt: skip
    width, tokens, lanes = _widest(frame, layer)
    r, whole = frame.residual, frame.tokens * frame.arch.hidden_size * frame.item
    a = tokens * width * frame.item
    gathered = whole if frame.plan.sequence_parallel else 0
    # What each product of the feed-forward part adds, less what its backward has freed already.
    steps = (
        ("down-projection", f"T'·h·e+n·f·e{'+T·h·e' if gathered else ''}", r + gathered + a),
        ("activation", f"T'·h·e+{lanes}·n·f·e", r + lanes * a),
        ("up-projection", "2·T'·h·e+2·T·h·e-n·f·e" if gathered else "T'·h·e+T·h·e-n·f·e", r + whole + (gathered + r if gathered else 0) - a),
    )  # fmt: skip
    name, formula, size = max(steps, key=lambda step: step[2])
    yield frame.part("activations", f"backward of the last layer's {name}: gradients, less what is freed", formula, size, moments=("backward",),
                     more={"n": tokens, "f": width}, source="NVIDIA/TransformerEngine v2.11, transformer_engine/pytorch/module/linear.py")  # fmt: skip


def _widest(frame: Frame, layer: Layer) -> tuple[int, int, int]:
    feed = layer.feed_forward
    lanes = 2 if getattr(feed, "gated", False) else 1
    if isinstance(feed, Experts):
        return feed.width // frame.plan.etp, rows(frame, feed), lanes
    if isinstance(feed, FeedForward):
        return feed.width // frame.plan.tp, frame.tokens, lanes
    return frame.arch.hidden_size, frame.outside, lanes
