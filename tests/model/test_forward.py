"""The forward pass: whole against a plain reference, cut against whole, and what is sent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.model import Architecture, ModelConfig, architecture, preset
from tokenwire.model.forward import forward
from tokenwire.model.forward.weights import layer_weights, norm_bias
from tokenwire.model.vectors import table_rows

GPT = architecture(ModelConfig(hidden_size=48, layers=4, heads=4, max_positions=64), 50)
LLAMA = architecture(
    ModelConfig(
        hidden_size=48, layers=4, heads=8, kv_heads=4, feed_forward=80, gated=True, activation="silu", norm="rms", bias=False,
        positions="rotary", tied_embeddings=False, window=5,
    ),
    50,
)  # fmt: skip


def _ids(b: int = 2, s: int = 8, seed: int = 0, vocabulary: int = 50):
    return np.random.default_rng(seed).integers(0, vocabulary, (b, s))


def _reference(arch: Architecture, ids, seed: int = 0):
    """Return hidden [b, s, h] of one token at a time in float64: loops, no matrices of ranks, no sharding."""
    h, eps = arch.hidden_size, 1e-5
    table = table_rows("embedding.weight", np.arange(arch.vocabulary_size), h, seed).astype(np.float64)
    places = table_rows("position.weight", np.arange(ids.shape[1]), h, seed).astype(np.float64)
    out = np.empty((*ids.shape, h))

    def norm(x, bias):
        x = x - x.mean() if arch.norm.kind == "layer" else x
        x = x / math.sqrt((x * x).mean() + eps)
        return x if bias is None else x + bias

    def act(x):
        if arch.layers[0].feed_forward.activation == "silu":
            return x / (1 + np.exp(-x))
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def turn(x, p):
        d = len(x)
        y = x.copy()
        for i in range(d // 2):
            angle = p * 10_000.0 ** (-2 * i / d)
            y[i] = x[i] * math.cos(angle) - x[i + d // 2] * math.sin(angle)
            y[i + d // 2] = x[i + d // 2] * math.cos(angle) + x[i] * math.sin(angle)
        return y

    for b, sequence in enumerate(ids):
        xs = [table[t] + (places[p] if arch.positions == "learned" else 0) for p, t in enumerate(sequence)]
        for index, layer in enumerate(arch.layers):
            w, a = layer_weights(arch, index, seed), layer.mixer
            ys = [norm(x, w.norm_biases[0]) for x in xs]
            q, k, v = (
                [
                    (y @ part.weight.T.astype(np.float64) + (0 if part.bias is None else part.bias)).reshape(
                        n, -1
                    )
                    for y in ys
                ]
                for part, n in ((w.q, a.heads), (w.k, a.kv_heads), (w.v, a.kv_heads))
            )
            if arch.positions == "rotary":
                q, k = (
                    [np.array([turn(head, p) for head in x]) for p, x in enumerate(part)] for part in (q, k)
                )
            for p in range(len(xs)):
                heads = []
                for i in range(a.heads):
                    j = i // (a.heads // a.kv_heads)
                    first = 0 if a.window is None else max(0, p - a.window + 1)
                    scores = np.array([q[p][i] @ k[o][j] for o in range(first, p + 1)]) / math.sqrt(
                        a.head_dim
                    )
                    weights = np.exp(scores - scores.max())
                    heads.append(
                        sum(
                            x * v[o][j]
                            for x, o in zip(weights / weights.sum(), range(first, p + 1), strict=True)
                        )
                    )
                mixed = np.concatenate(heads) @ w.output.weight.T
                xs[p] = xs[p] + mixed + (0 if w.output.bias is None else w.output.bias)
            for p, x in enumerate(xs):
                y = norm(x, w.norm_biases[1])
                up = y @ w.up.weight.T + (0 if w.up.bias is None else w.up.bias)
                middle = act(up) if w.gate is None else act(y @ w.gate.weight.T) * up
                xs[p] = x + middle @ w.down.weight.T + (0 if w.down.bias is None else w.down.bias)
        out[b] = xs
    return out


@pytest.mark.parametrize("arch", [GPT, LLAMA], ids=["gpt", "llama"])
def test_the_whole_pass_is_the_plain_one(arch):
    ids = _ids()
    run = forward(arch, ids, labels=ids)
    plain = _reference(arch, ids)
    assert np.allclose(run.hidden.transpose(1, 0, 2), plain, atol=2e-6)
    # Head and loss from the plain hidden states, in float64.
    last = plain - (plain.mean(-1, keepdims=True) if arch.norm.kind == "layer" else 0)
    last = last / np.sqrt((last * last).mean(-1, keepdims=True) + 1e-5)
    bias = norm_bias(arch, "final_norm", 0)
    last = last if bias is None else last + bias
    name = "embedding.weight" if arch.tied_embeddings else "head.weight"
    logits = last @ table_rows(name, np.arange(50), 48).T
    assert np.allclose(run.logits.transpose(1, 0, 2), logits, atol=1e-5)
    loss = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, ids[..., None], -1)[..., 0]
    assert np.allclose(run.loss.T, loss, atol=1e-5)


@settings(max_examples=25)
@given(
    st.sampled_from([GPT, LLAMA]), st.sampled_from([1, 2, 4]), st.booleans(),
    st.sampled_from([1, 2, 4, [[0], [1, 2], [3]]]), st.integers(0, 3), st.integers(1, 3),
)  # fmt: skip
def test_cut_is_whole(arch, tp, sequence_parallel, stages, seed, b):
    ids = _ids(b=b, seed=seed)
    rows = 52
    whole = forward(arch, ids, seed=seed, labels=ids, vocabulary_rows=rows)
    run = forward(
        arch,
        ids,
        seed=seed,
        tp=tp,
        sequence_parallel=sequence_parallel,
        stages=stages,
        labels=ids,
        vocabulary_rows=rows,
    )
    assert np.allclose(run.hidden, whole.hidden, atol=1e-6)
    assert np.allclose(run.logits, whole.logits, atol=1e-5)
    assert np.allclose(run.loss, whole.loss, atol=1e-5)


def _said(run):
    return [(x.op, x.group, x.what, x.layer, x.stage) for x in run.sent]


def test_what_a_stage_says_with_sequence_parallelism():
    run = forward(GPT, _ids(), tp=2, sequence_parallel=True, stages=2)
    block = [("all_gather", "input"), ("reduce_scatter", "output")]
    blocks = [
        (op, "tp", f"{name} {what}", layer, layer // 2)
        for layer in range(4)
        for name in ("attention", "feed-forward")
        for op, what in block
    ]
    assert _said(run) == [
        # Learned positions are added to the whole sequence, so the embedding is summed before it is cut.
        ("all_reduce", "tp", "embedding", None, 0),
        *blocks[:8],
        ("send", "pp", "activations to the stage after", 1, 0),
        *blocks[8:],
        ("all_gather", "tp", "head input", None, 1),
    ]
    shapes = {x.what: (x.ranks[0].shape, len(x.ranks), x.elements) for x in run.sent}
    # b = 2, s = 8, h = 48: 768 elements; a rank has 4 of the 8 tokens.
    assert shapes["embedding"] == ((2, 8, 48), 2, 768)
    assert shapes["attention input"] == ((4, 2, 48), 2, 768)
    assert shapes["attention output"] == ((8, 2, 48), 2, 768)
    assert shapes["activations to the stage after"] == ((4, 2, 48), 2, 384)


def test_what_is_said_without_sequence_parallelism():
    run = forward(LLAMA, _ids(), tp=4, stages=4, labels=_ids())
    ops = [x.op for x in run.sent]
    # embedding, 2 a layer, 3 for the loss; a send between four stages.
    assert (ops.count("all_reduce"), ops.count("send"), len(ops)) == (1 + 2 * 4 + 3, 3, 15)
    assert run.sent[3].ranks[0].shape == (8, 2, 48)
    assert [x.what for x in run.sent[-3:]] == [
        "loss: largest logit",
        "loss: predicted logit",
        "loss: sum of exponentials",
    ]
    # Rotary positions with sequence parallelism: the embedding is reduce-scattered.
    assert forward(LLAMA, _ids(), tp=2, sequence_parallel=True).sent[0].op == "reduce_scatter"


def test_partial_sums_are_true_parts():
    ids = _ids()
    run, whole = forward(GPT, ids, tp=4), forward(GPT, ids, tp=1)
    outputs = [x for x in run.sent if x.what == "feed-forward output"]
    assert len(outputs) == 4
    for sent in outputs:
        parts = np.stack(sent.ranks)
        assert all(np.abs(part).max() > 1e-4 for part in parts)
        assert np.allclose(sent.result, parts.sum(axis=0), atol=1e-6)
        assert not np.allclose(sent.result, parts[0], atol=1e-5)
    embedding = np.stack(run.sent[0].ranks)
    # Each token's row is with exactly one rank.
    assert (np.any(embedding != 0, axis=-1).sum(axis=0) == 1).all()
    # The last output with its bias is what the last layer adds.
    last = outputs[-1].result + layer_weights(GPT, 3, 0).down.bias
    before = forward(GPT, ids, stages=[[0, 1, 2], [3]], upto_stage=0).hidden
    attended = [x for x in run.sent if x.what == "attention output"][-1].result + layer_weights(
        GPT, 3, 0
    ).output.bias
    assert np.allclose(before + attended + last, whole.hidden, atol=1e-6)


def test_a_stage_alone_is_the_beginning_of_the_whole():
    arch, ids = preset("dante", 100), _ids(1, 16, vocabulary=100)
    alone = forward(arch, ids, tp=2, sequence_parallel=True, stages=2, upto_stage=0)
    whole = forward(arch, ids, tp=2, sequence_parallel=True, stages=2)
    assert len(alone.sent) == 1 + 4 * 4 + 1
    for mine, theirs in zip(alone.sent, whole.sent, strict=False):
        assert mine.what == theirs.what
        assert all(np.array_equal(a, b) for a, b in zip(mine.ranks, theirs.ranks, strict=True))
    assert np.array_equal(np.concatenate(alone.sent[-1].ranks), alone.hidden)
    assert alone.logits is None
    assert forward(arch, ids, tp=2, record=False, upto_stage=0).sent == ()


def test_a_token_sees_nothing_after_it():
    ids = _ids(1, 8)
    changed = ids.copy()
    changed[0, 5:] = (changed[0, 5:] + 1) % 50
    assert np.array_equal(forward(GPT, ids).hidden[:5], forward(GPT, changed).hidden[:5])
    assert not np.allclose(forward(GPT, ids).hidden[5:], forward(GPT, changed).hidden[5:], atol=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tp": 3}, "must divide the 4 heads"),
        ({"tp": 0}, "tp = 0"),
        ({"stages": 3}, "must divide the 4 layers; nearest that works: 2"),
        ({"stages": [[0], [2, 1, 3]]}, "once each, in order"),
        ({"stages": [[0, 1, 2, 3], []]}, "at least one a stage"),
        ({"upto_stage": 1}, "stages 0 to 0"),
        ({"tp": 4, "vocabulary_rows": 50}, "padded vocabulary"),
        ({"vocabulary_rows": 48}, "padded vocabulary"),
        ({"labels": np.zeros((1, 1), int)}, "shape of the ids"),
    ],
)
def test_wrong_sizes_are_one_line(options, said):
    with pytest.raises(InputError, match=said):
        forward(GPT, _ids(), **options)


def test_wrong_tokens_and_models():
    with pytest.raises(InputError, match="divisible by tp"):
        forward(GPT, _ids(2, 7), tp=2, sequence_parallel=True)
    with pytest.raises(InputError, match="ids 0 to 49"):
        forward(GPT, np.full((1, 4), 50))
    with pytest.raises(InputError, match="at least one token"):
        forward(GPT, np.zeros((0, 4), int))
    with pytest.raises(InputError, match="64 learned positions"):
        forward(GPT, np.zeros((1, 65), int))
    with pytest.raises(InputError, match="not of the GPT-2 or Llama kind"):
        forward(preset("mamba-2.8b"), np.zeros((1, 2), int))
    with pytest.raises(InputError, match="multiplications, more than"):
        forward(preset("llama-3.1-405b"), np.zeros((1, 64), int))


@pytest.mark.torch
def test_gpt_is_that_of_torch():
    """The same weights in torch's own modules: LayerNorm, scaled_dot_product_attention, GELU."""
    import torch
    from torch.nn import functional as torch_f

    ids, h = _ids(), 48
    x = torch.from_numpy(table_rows("embedding.weight", np.arange(50), h))[torch.from_numpy(ids)]
    x = x + torch.from_numpy(table_rows("position.weight", np.arange(8), h))
    for index in range(4):
        w = layer_weights(GPT, index, 0)
        put = {name: [torch.from_numpy(np.ascontiguousarray(t)) for t in (part.weight, part.bias)]
               for name, part in (("q", w.q), ("k", w.k), ("v", w.v), ("o", w.output), ("up", w.up), ("down", w.down))}  # fmt: skip
        y = torch_f.layer_norm(x, (h,), torch.ones(h), torch.from_numpy(w.norm_biases[0]))
        q, k, v = (torch_f.linear(y, *put[name]).reshape(2, 8, 4, 12).transpose(1, 2) for name in "qkv")
        mixed = torch_f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 8, h)
        x = x + torch_f.linear(mixed, *put["o"])
        y = torch_f.layer_norm(x, (h,), torch.ones(h), torch.from_numpy(w.norm_biases[1]))
        x = x + torch_f.linear(torch_f.gelu(torch_f.linear(y, *put["up"]), approximate="tanh"), *put["down"])
    assert np.allclose(forward(GPT, ids).hidden.transpose(1, 0, 2), x.numpy(), atol=2e-6)
