"""An encoder beside the decoder that a journey says, and the attention of each decoder layer to it (T5).

The encoder has layers of the decoder's shape and a final norm; it shares the embedding. Each decoder layer has a second attention,
whose queries are the decoder's and whose keys and values are products of the encoder's output, with a norm of its own
(megatron-core 0.16.1, models/T5/t5_model.py, t5_spec.py). Symbols: L_e layers and T_e tokens of the encoder, as in ``frame`` else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenwire.model.architecture import Architecture, Attention
from tokenwire.model.tensors import layer_tensors
from tokenwire.plan import Stage
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layers import KORTHIKANTI, dropout, layer_activations, norm
from tokenwire.timeline.memory.part import STANDING, Part
from tokenwire.timeline.memory.saved import Saved, product_input, saved

SOURCE = "megatron-core 0.16.1, models/T5/t5_model.py"


def encoder_elements(frame: Frame, stage: Stage) -> tuple[int, ...]:
    """Return the elements of each tensor that the encoder and the attention to it add to a rank."""
    n, arch = frame.software.encoder_layers, frame.arch
    if not n or not stage.has_embedding:
        return ()
    h, t = arch.hidden_size, frame.plan.tp
    layer = [x.elements // (t if x.split_dim is not None else 1) for x in layer_tensors(arch, arch.layers[0], 0, "megatron")]
    final = [h] * (1 + arch.norm.bias)
    return (*layer * n, *final, *_cross_elements(arch, t) * len(arch.layers))


def _cross_elements(arch: Architecture, t: int) -> list[int]:
    a = _attention(arch)
    h, q, kv = arch.hidden_size, a.heads * a.head_dim, 2 * a.kv_heads * a.head_dim
    biases = [q // t, kv // t, h] if a.output_bias else []
    return [*[h] * (1 + arch.norm.bias), q * h // t, kv * h // t, h * q // t, *biases]


def _attention(arch: Architecture) -> Attention:
    mixer = arch.layers[0].mixer
    assert isinstance(mixer, Attention)
    return mixer


def encoder_frame(frame: Frame) -> Frame:
    """Return the frame of the encoder, whose sequences are of another length."""
    training = frame.plan.training.model_copy(update={"sequence_length": frame.software.encoder_sequence_length})
    return replace(frame, plan=replace(frame.plan, training=training))


def encoder(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield what the encoder, and the attention of the decoder to it, keep of a micro-batch until the backward."""
    n = frame.software.encoder_layers
    if not n or not stage.has_embedding:
        return
    inside, layers = encoder_frame(frame), len(frame.arch.layers)
    for one in layer_activations(inside, frame.arch.layers[0]).saved:
        yield _of(f"encoder: {one.what}", one, n)
    yield inside.part("activations", "encoder: input of its final norm, and output", "2·T'·h·e", 2 * inside.residual, moments=STANDING, source=SOURCE)
    for one in (*norm(frame, "norm before it"), *_cross(frame, inside), *dropout(frame, "dropout after it")):
        yield _of(f"attention to the encoder: {one.what}", one, layers)


def _of(what: str, one: Saved, count: int) -> Part:
    return Part("activations", f"{what}, {count} layers", count * one.size, STANDING, f"{count}·{one.formula}", f"{count}·{one.values}", one.source)


def _cross(frame: Frame, inside: Frame) -> Iterator[Saved]:
    a, t, e = _attention(frame.arch), frame.plan.tp, frame.item
    q, kv, T, T_e = a.heads * a.head_dim, 2 * a.kv_heads * a.head_dim, frame.tokens, inside.tokens
    yield saved(frame, "qkv", "queries, keys and values", "(T·q+T_e·k)/t·e", (T * q + T_e * kv) // t * e, SOURCE, q=q, k=kv, T_e=T_e)
    scores = frame.plan.training.micro_batch * a.heads // t * frame.plan.training.sequence_length * frame.software.encoder_sequence_length
    if frame.software.attention == "unfused":
        masked = (1 + e) if frame.attention_dropout else 0
        yield saved(frame, "core", "softmax of the scores, and their dropout: mask and result", f"n·(e+{masked})", scores * (e + masked), KORTHIKANTI,
                    n=scores)  # fmt: skip
    else:
        yield saved(frame, "core", "sums of the softmax, fp32", "4·T·a/t", 4 * T * a.heads // t, KORTHIKANTI, a=a.heads)
    yield product_input(frame, "projection", "output projection: its input", "T·w/t", T * q // t, KORTHIKANTI, w=q)
