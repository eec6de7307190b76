"""The forward pass, cut over tensor-parallel ranks and pipeline stages exactly as Megatron cuts it.

NVIDIA/Megatron-LM, megatron/core: models/common/embeddings/language_model_embedding.py, transformer/transformer_layer.py,
tensor_parallel/layers.py, tensor_parallel/cross_entropy.py, pipeline_parallel/schedules.py. Sequence parallelism is
Korthikanti et al. 2022, section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Attention, FeedForward
from tokenwire.model.forward.maths import activation, causal_attention, normalised, turned
from tokenwire.model.forward.sent import Floats, Forward, Sent
from tokenwire.model.forward.weights import LayerWeights, layer_weights, norm_bias, product
from tokenwire.model.vectors import learned_positions, sinusoidal_positions, table_rows

LIMIT = 2 * 10**12
"""Multiplications of the largest forward pass that is run (tokens x parameters of the stages run)."""

Ranks = list[Floats]
"""An array a tensor-parallel rank."""


def forward(
    arch: Architecture,
    ids: npt.NDArray[Any],
    *,
    seed: int = 0,
    tp: int = 1,
    sequence_parallel: bool = False,
    stages: int | Sequence[Sequence[int]] = 1,
    upto_stage: int | None = None,
    labels: npt.NDArray[Any] | None = None,
    vocabulary_rows: int | None = None,
    record: bool = True,
) -> Forward:
    """Return the forward pass of the micro-batch ``ids`` [b, s] with seeded weights, and what is sent on the way.

    ``stages`` is a number of equal pipeline stages, or the layers of each; only stages up to ``upto_stage`` are run, and that
    one's send is the last. ``labels`` [b, s] adds the loss. ``vocabulary_rows`` is the padded vocabulary (default: the least
    multiple of tp). Raises ``InputError`` for sizes that do not divide, ids without a row, and models without a forward pass.

    >>> from tokenwire.model import preset
    >>> run = forward(preset("dante", 1000), np.zeros((1, 4), dtype=np.int32), tp=2, stages=2, upto_stage=0)
    >>> [(sent.op, sent.what, sent.ranks[0].shape) for sent in run.sent][-2:]    # doctest: +NORMALIZE_WHITESPACE
    [('all_reduce', 'feed-forward output', (4, 1, 256)),
     ('send', 'activations to the stage after', (4, 1, 256))]
    """
    cuts = _stages(arch, stages)
    last = len(cuts) - 1 if upto_stage is None else upto_stage
    if not 0 <= last < len(cuts):
        raise InputError(
            f"upto_stage = {upto_stage}",
            rule=f"there are stages 0 to {len(cuts) - 1}",
            nearest=str(len(cuts) - 1),
        )
    rows = vocabulary_rows or -(-arch.vocabulary_size // max(tp, 1)) * tp
    _check(
        arch, ids, labels, tp, sequence_parallel, rows, [layer for cut in cuts[: last + 1] for layer in cut]
    )
    run = _Run(arch, seed, tp, sequence_parallel, rows, record)
    x = run.embedded(ids)
    for stage, layers in enumerate(cuts[: last + 1]):
        run.stage = stage
        for index in layers:
            x = run.layer(index, x)
        if stage < len(cuts) - 1:
            run.said("send", "activations to the stage after", x, layers[-1], group="pp", peer=stage + 1)
    hidden = run.whole(x)
    if last < len(cuts) - 1:
        return Forward(hidden, None, None, tuple(run.sent))
    logits = run.logits(x)
    loss = None if labels is None else run.loss(logits, labels)
    return Forward(hidden, np.concatenate(logits, axis=-1), loss, tuple(run.sent))


class _Run:
    """One pass over the ranks of a tensor-parallel group; ``stage`` is where it is."""

    def __init__(
        self, arch: Architecture, seed: int, tp: int, sequence_parallel: bool, rows: int, record: bool
    ) -> None:
        self.arch, self.seed, self.tp, self.rows, self.record = arch, seed, tp, rows, record
        # Megatron has no sequence parallelism without tensor parallelism.
        self.cut = sequence_parallel and tp > 1
        self.stage = 0
        self.sent: list[Sent] = []

    def said(
        self,
        op: Literal["all_reduce", "reduce_scatter", "all_gather", "send"],
        what: str,
        ranks: Ranks,
        layer: int | None,
        *,
        group: Literal["tp", "pp"] = "tp",
        peer: int | None = None,
        reduction: Literal["sum", "max", ""] = "",
    ) -> Sent:
        """Note a communication (groups of one say nothing)."""
        sent = Sent(op, group, what, self.stage, layer, tuple(ranks), peer, reduction)
        if self.record and (self.tp > 1 or group == "pp"):
            self.sent.append(sent)
        return sent

    def whole(self, x: Ranks) -> Floats:
        """Return activations as one array [s, b, h]."""
        return np.concatenate(x, axis=0) if self.cut else x[0]

    def gathered(self, x: Ranks, what: str, layer: int | None) -> Ranks:
        """Return the input of a column-parallel product: with sequence parallelism gathered from all ranks."""
        if not self.cut:
            return x
        return [self.said("all_gather", what, x, layer).result] * self.tp

    def summed(self, partial: Ranks, what: str, layer: int, bias: Floats | None) -> Ranks:
        """Return the output of a row-parallel product: partial sums added, cut by the sequence if it is parallel."""
        if self.tp == 1:
            total = partial[0]
        elif self.cut:
            total = self.said("reduce_scatter", what, partial, layer, reduction="sum").result
        else:
            total = self.said("all_reduce", what, partial, layer, reduction="sum").result
        if bias is not None:
            total = total + bias
        return np.split(total, self.tp) if self.cut else [total] * self.tp

    def embedded(self, ids: npt.NDArray[Any]) -> Ranks:
        """Return the embedding of ids [b, s] with positions, [s, b, h] a rank (its part of s with sequence parallelism)."""
        arch, s = self.arch, ids.shape[1]
        seen, where = np.unique(ids, return_inverse=True)
        table = table_rows("embedding.weight", seen, arch.hidden_size, self.seed)
        owner = seen // (self.rows // self.tp)
        # A rank has zeros for tokens whose rows are with another.
        partial = [
            np.where((owner == rank)[:, None], table, np.float32(0))[where.reshape(ids.shape)]
            for rank in range(self.tp)
        ]
        fixed: Floats | None = None
        if arch.positions == "learned":
            fixed = learned_positions(arch, np.arange(s), self.seed)
        elif arch.positions == "sinusoidal":
            fixed = sinusoidal_positions(np.arange(s), arch.hidden_size)
        if fixed is None and self.cut:
            scattered = [np.ascontiguousarray(part.transpose(1, 0, 2)) for part in partial]
            total = self.said("reduce_scatter", "embedding", scattered, None, reduction="sum").result
        else:
            total = self.said("all_reduce", "embedding", partial, None, reduction="sum").result
            total = np.ascontiguousarray((total if fixed is None else total + fixed).transpose(1, 0, 2))
        return np.split(total, self.tp) if self.cut else [total] * self.tp

    def normed(self, x: Ranks, bias: Floats | None) -> Ranks:
        """Return the norm of each rank's activations (once where all have the same)."""
        if not self.cut:
            return [normalised(x[0], self.arch.norm, bias)] * self.tp
        return [normalised(part, self.arch.norm, bias) for part in x]

    def layer(self, index: int, x: Ranks) -> Ranks:
        """Return the activations after a layer."""
        w = layer_weights(self.arch, index, self.seed)
        y = self.gathered(self.normed(x, w.norm_biases[0]), "attention input", index)
        partial = [self._attention(w, index, rank, y[rank]) for rank in range(self.tp)]
        x = _added(x, self.summed(partial, "attention output", index, w.output.bias), self.cut)
        y = self.gathered(self.normed(x, w.norm_biases[1]), "feed-forward input", index)
        partial = [self._feed_forward(w, index, rank, y[rank]) for rank in range(self.tp)]
        return _added(x, self.summed(partial, "feed-forward output", index, w.down.bias), self.cut)

    def _attention(self, w: LayerWeights, index: int, rank: int, x: Floats) -> Floats:
        mixer = self.arch.layers[index].mixer
        assert isinstance(mixer, Attention)
        s, b, _ = x.shape
        q, k, v = (
            part.columns(rank, self.tp)(x).reshape(s, b, heads // self.tp, -1)
            for part, heads in ((w.q, mixer.heads), (w.k, mixer.kv_heads), (w.v, mixer.kv_heads))
        )
        if self.arch.positions == "rotary":
            q, k = turned(q, self.arch.rope_theta), turned(k, self.arch.rope_theta)
        return w.output.rows(rank, self.tp)(causal_attention(q, k, v, mixer.window))

    def _feed_forward(self, w: LayerWeights, index: int, rank: int, x: Floats) -> Floats:
        part = self.arch.layers[index].feed_forward
        assert isinstance(part, FeedForward)
        act = activation(part.activation)
        up = w.up.columns(rank, self.tp)(x)
        middle = act(up) if w.gate is None else act(w.gate.columns(rank, self.tp)(x)) * up
        return w.down.rows(rank, self.tp)(middle)

    def logits(self, x: Ranks) -> Ranks:
        """Return the logits of each rank's part of the vocabulary, [s, b, V/t]."""
        arch = self.arch
        if arch.final_norm:
            x = self.normed(x, norm_bias(arch, "final_norm", self.seed))
        x = self.gathered(x, "head input", None)
        name = "embedding.weight" if arch.tied_embeddings else "head.weight"
        table = table_rows(name, np.arange(self.rows), arch.hidden_size, self.seed)
        return [product(y, part) for y, part in zip(x, np.split(table, self.tp), strict=True)]

    def loss(self, logits: Ranks, labels: npt.NDArray[Any]) -> Floats:
        """Return the cross entropy of labels [b, s], [s, b] in nats, by the three sums that the ranks exchange."""
        target = labels.T
        largest = [part.max(axis=-1) for part in logits]
        top = self.said("all_reduce", "loss: largest logit", largest, None, reduction="max").result
        width = self.rows // self.tp
        predicted, sums = [], []
        for rank, part in enumerate(logits):
            mine = target // width == rank
            at = np.where(mine, target - rank * width, 0)[..., None]
            shifted = part - top[..., None]
            predicted.append(np.where(mine, np.take_along_axis(shifted, at, axis=-1)[..., 0], np.float32(0)))
            sums.append(np.exp(shifted).sum(axis=-1))
        chosen = self.said("all_reduce", "loss: predicted logit", predicted, None, reduction="sum").result
        total = self.said("all_reduce", "loss: sum of exponentials", sums, None, reduction="sum").result
        return np.log(total) - chosen


def _added(x: Ranks, y: Ranks, cut: bool) -> Ranks:
    if not cut:
        return [x[0] + y[0]] * len(x)
    return [a + b for a, b in zip(x, y, strict=True)]


def _stages(arch: Architecture, stages: int | Sequence[Sequence[int]]) -> list[list[int]]:
    count = len(arch.layers)
    if isinstance(stages, int):
        if stages < 1 or count % stages:
            near = next(n for n in range(min(max(stages, 1), count), 0, -1) if count % n == 0)
            raise InputError(f"stages = {stages}", rule=f"must divide the {count} layers", nearest=str(near))
        each = count // stages
        return [list(range(i * each, (i + 1) * each)) for i in range(stages)]
    cuts = [list(cut) for cut in stages]
    if [layer for cut in cuts for layer in cut] != list(range(count)) or not all(cuts):
        raise InputError(
            "stages", rule=f"must name the {count} layers once each, in order, at least one a stage"
        )
    return cuts


def _check(
    arch: Architecture,
    ids: npt.NDArray[Any],
    labels: npt.NDArray[Any] | None,
    tp: int,
    sequence_parallel: bool,
    rows: int,
    layers: list[int],
) -> None:
    if ids.ndim != 2 or not ids.size:
        raise InputError(f"ids of shape {ids.shape}", rule="must be [b, s], at least one token")
    for name, tokens in (("token", ids), ("label", labels)):
        if tokens is None:
            continue
        if tokens.shape != ids.shape:
            raise InputError(
                f"labels of shape {tokens.shape}", rule=f"must have the shape of the ids, {ids.shape}"
            )
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < arch.vocabulary_size:
            raise InputError(
                f"{name} id {int(tokens.max())}",
                rule=f"the vocabulary has ids 0 to {arch.vocabulary_size - 1:,}",
            )
    s = ids.shape[1]
    if tp < 1 or rows % tp or rows < arch.vocabulary_size:
        raise InputError(f"tp = {tp}", rule=f"must divide the {rows:,} rows of the padded vocabulary")
    if sequence_parallel and s % tp:
        raise InputError(
            f"sequence of {s} tokens",
            rule=f"must be divisible by tp = {tp}",
            nearest=str(max(s // tp, 1) * tp),
        )
    for layer in {arch.layers[index] for index in layers}:
        mixer, part = layer.mixer, layer.feed_forward
        if isinstance(mixer, Attention) and (mixer.heads % tp or mixer.kv_heads % tp):
            raise InputError(
                f"tp = {tp}", rule=f"must divide the {mixer.heads} heads and {mixer.kv_heads} KV heads"
            )
        if isinstance(part, FeedForward) and part.width % tp:
            raise InputError(f"tp = {tp}", rule=f"must divide the feed-forward width {part.width:,}")
    if arch.embedding_size not in (None, arch.hidden_size) or arch.embedding_norm:
        raise InputError(f"model {arch.name}", rule="has an embedding that the forward pass does not know")
    from tokenwire.model.parameters import layer_parameters

    work = ids.size * sum(layer_parameters(arch, arch.layers[index]) for index in layers)
    if work > LIMIT:
        raise InputError(
            f"a forward pass of {arch.name} over {ids.size:,} tokens",
            rule=f"is {work:.1e} multiplications, more than {LIMIT:.0e}",
        )
