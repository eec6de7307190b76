"""The ``[model]`` section: a preset, a Hugging Face ``config.json``, or the fields themselves in clear names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import Field, model_validator

from tokenwire.config import Positive, Section
from tokenwire.errors import InputError, unknown
from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Mixer,
    Norm,
    Positions,
)
from tokenwire.model.families import reader_of
from tokenwire.model.fields import MOST_LAYERS, Fields
from tokenwire.model.left_out import fields_left_out, parts_left_out
from tokenwire.model.overrides import with_overrides
from tokenwire.model.parameters import ParameterCount, parameters
from tokenwire.model.pattern import layers_of, state_space

DEFAULT = "dante"
"""The preset that is meant where nothing is said."""


class ModelConfig(Section):
    """The ``[model]`` section. One of: ``preset``; ``config`` (path of a ``config.json``); or the fields from ``hidden_size`` on.

    Fields that are not given have the value in brackets: ``heads`` [hidden_size/64], ``kv_heads`` [heads], ``head_dim``
    [hidden_size/heads], ``feed_forward`` [4·hidden_size], ``vocabulary_size`` [the tokenizer's]. ``experts`` turns the
    feed-forward part of every layer but the first ``dense_layers`` into experts of ``expert_feed_forward``.
    ``shared_feed_forward`` is the width of the expert that sees every token [``shared_experts`` times that of an expert].
    ``kv_lora_rank`` turns attention into latent attention (MLA). ``layer_pattern`` says a hybrid: a letter a layer, each layer
    one thing: M a state-space block of ``state_heads`` [2·hidden_size/state_head_dim], * attention, - feed-forward, E experts.
    ``mtp_layers`` modules predict further tokens, each of one layer like the last, or of those that ``mtp_pattern`` says in the
    same letters. Experts work on ``expert_latent_size`` numbers a token [hidden_size], with a projection to them and one back.
    """

    preset: str | None = None
    config: str | None = None
    name: str | None = None
    hidden_size: Positive | None = None
    layers: Positive | None = Field(None, le=MOST_LAYERS)
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_dim: Positive | None = None
    feed_forward: Positive | None = None
    gated: bool = False
    vocabulary_size: Positive | None = None
    max_positions: Positive | None = None
    positions: Positions = "learned"
    norm: Literal["rms", "layer"] = "layer"
    activation: str = "gelu"
    bias: bool = True
    qkv_bias: bool | None = None
    tied_embeddings: bool = True
    qk_norm: Literal["none", "head", "full"] = "none"
    window: Positive | None = None
    experts: Positive | None = None
    active_experts: Positive | None = None
    expert_feed_forward: Positive | None = None
    shared_experts: int = Field(0, ge=0, le=4096)
    shared_feed_forward: Positive | None = None
    expert_latent_size: Positive | None = None
    dense_layers: int = Field(0, ge=0, le=MOST_LAYERS)
    q_lora_rank: Positive | None = None
    kv_lora_rank: Positive | None = None
    qk_nope_head_dim: Positive | None = None
    qk_rope_head_dim: Positive | None = None
    v_head_dim: Positive | None = None
    mtp_layers: int = Field(0, ge=0, le=64)
    mtp_pattern: str | None = Field(None, min_length=1, max_length=MOST_LAYERS)
    layer_pattern: str | None = Field(None, min_length=1, max_length=MOST_LAYERS)
    state_heads: Positive | None = None
    state_head_dim: Positive = 64
    state_size: Positive = 128
    state_groups: Positive = 8

    @model_validator(mode="after")
    def _one_description(self) -> ModelConfig:
        if self.preset is not None and self.config is not None:
            raise ValueError("preset and config exclude each other: name one of them")
        given = sorted(
            self.model_fields_set
            - {"preset", "config", "name"}
            - {k for k in self.model_fields_set if getattr(self, k) is None}
        )
        if (self.preset or self.config) and given:
            raise ValueError(
                f"{given[0]} cannot stand beside {'preset' if self.preset else 'config'}: give either that or the fields"
            )
        if given and self.hidden_size is None:
            raise ValueError(f"{given[0]} describes a model by its fields, which also needs hidden_size")
        return self

    @property
    def takes_vocabulary(self) -> bool:
        """Return whether the vocabulary is that of the tokenizer."""
        if self.config is not None:
            return False
        if self.hidden_size is not None:
            return self.vocabulary_size is None
        return "vocab_size" not in _preset_fields(self.preset or DEFAULT)


@dataclass(frozen=True)
class Model:
    """A model: its architecture and its parameters, counted."""

    architecture: Architecture
    parameters: ParameterCount

    @classmethod
    def of(cls, arch: Architecture) -> Model:
        """Return the model of an architecture."""
        return cls(arch, parameters(arch))


@cache
def presets() -> tuple[str, ...]:
    """Return the names of the models in ``catalog/``.

    >>> "llama-3.1-8b" in presets()
    True
    """
    folder = resources.files("tokenwire.model") / "catalog"
    return tuple(
        sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    )


@cache
def _preset_fields(name: str) -> Mapping[str, Any]:
    known = presets()
    key = name.lower()
    if key not in known:
        raise unknown("model preset", name[:80], known, where="[model]")
    file = resources.files("tokenwire.model") / "catalog" / f"{key}.toml"
    # TOML has no null, which a config.json uses for "not at all" (q_lora_rank): in a preset it is written "none".
    return {
        key: None if value == "none" else value
        for key, value in tomllib.loads(file.read_text("utf-8")).items()
    }


def preset(name: str, vocabulary_size: int | None = None) -> Architecture:
    """Return the architecture of a preset; ``vocabulary_size`` for those that leave it to the tokenizer.

    >>> preset("gpt2").hidden_size, len(preset("llama-3.1-405b").layers)
    (768, 126)
    """
    fields = dict(_preset_fields(name))
    fields.pop("source", None)
    if "vocab_size" not in fields:
        fields["vocab_size"] = _vocabulary(vocabulary_size, name)
    return replace(from_huggingface(fields, where=f"preset {name}"), name=name.lower())


def from_huggingface(fields: Mapping[str, Any], *, where: str = "config.json") -> Architecture:
    """Return the architecture that the keys of a Hugging Face ``config.json`` describe.

    Raises ``InputError`` for an unknown ``model_type`` or a value that cannot be.

    >>> from_huggingface({"model_type": "gpt2", "n_layer": 2}).layers[0].mixer.heads
    12
    """
    read = Fields(fields, where)
    kind = read.word("model_type", default="")
    inner = next((name for name in _TEXT if isinstance(fields.get(name), Mapping) and fields[name]), None)
    if inner is not None:
        if where.count(f" {inner}") > 7:
            raise InputError(inner, where=where.split(f" {inner}")[0], rule="is nested too deeply")
        # A model of text and images: what is trained on text is its text part.
        tied = {"tie_word_embeddings": fields["tie_word_embeddings"]} if "tie_word_embeddings" in fields else {}
        merged = {**tied, **fields[inner]}
        merged.setdefault("model_type", {"gemma3": "gemma3_text"}.get(kind, kind))
        arch = from_huggingface(merged, where=f"{where} {inner}")
        return replace(arch, left_out=(*arch.left_out, *parts_left_out(fields, inner)))
    if not kind:
        raise InputError("model_type is missing", where=where, rule="it names the family (gpt2, llama, ...)")
    arch = reader_of(kind, where)(read)
    arch = with_overrides(read, arch, reader_of(kind, where))
    return replace(arch, left_out=(*arch.left_out, *fields_left_out(read, arch)))


_TEXT = ("text_config", "llm_config", "language_config")
"""Where a multimodal configuration has its text part."""


def architecture(config: ModelConfig, vocabulary_size: int | None = None) -> Architecture:
    """Return the architecture of a preset or of fields (a ``config.json`` is read by ``formats.hf_config``).

    >>> arch = architecture(ModelConfig(hidden_size=128, layers=2, heads=4), vocabulary_size=1000)
    >>> arch.hidden_size, arch.vocabulary_size, arch.layers[0].feed_forward.width
    (128, 1000, 512)
    """
    if config.config is not None:
        raise InputError(
            f"config = {config.config!r}", where="[model]", rule="is read by formats.hf_config.model_of"
        )
    if config.hidden_size is None:
        return preset(config.preset or DEFAULT, vocabulary_size)
    return from_fields(config, vocabulary_size)


def _vocabulary(size: int | None, name: str) -> int:
    if size is None:
        raise InputError(
            f"model {name!r}",
            where="[model]",
            rule="takes its vocabulary from the tokenizer: give vocabulary_size",
        )
    if size < 1:
        raise InputError(f"vocabulary_size = {size}", where="[model]", rule="must be at least 1", nearest="1")
    return size


def from_fields(config: ModelConfig, vocabulary_size: int | None = None) -> Architecture:
    """Return the architecture that the fields of the section describe. Raises ``InputError`` where they do not fit."""
    h = config.hidden_size
    if h is None:
        raise InputError("hidden_size is missing", where="[model]", rule="a model by its fields needs it")
    name = config.name or "model"
    vocabulary = config.vocabulary_size or _vocabulary(vocabulary_size, name)
    dense = FeedForward(config.feed_forward or 4 * h, config.gated, config.bias, config.activation)
    mixer = _mixer(config, h)
    count = config.layers or 1
    layers = [Layer(mixer, dense)] * count
    if config.experts:
        sparse = Layer(mixer, _experts(config, dense))
        layers = [Layer(mixer, dense)] * min(config.dense_layers, count) + [sparse] * max(
            count - config.dense_layers, 0
        )
    elif (
        config.active_experts
        or config.expert_feed_forward
        or config.shared_experts
        or config.shared_feed_forward
        or config.expert_latent_size
    ):
        raise InputError("experts is missing", where="[model]", rule="other keys speak of experts")
    if config.layer_pattern is not None:
        if config.layers is not None and config.layers != len(config.layer_pattern):
            raise InputError(f"layers = {config.layers}", where="[model]", rule=f"layer_pattern has {len(config.layer_pattern)} letters, one a layer",
                             nearest=f"layers = {len(config.layer_pattern)}")  # fmt: skip
        layers = _by_pattern(config, config.layer_pattern, mixer, dense)
    if config.mtp_pattern is not None and not config.mtp_layers:
        raise InputError(
            "mtp_layers is missing", where="[model]", rule="mtp_pattern says what each of them is made of"
        )
    return Architecture(
        name=name, family="fields", vocabulary_size=vocabulary, hidden_size=h, layers=tuple(layers),
        norm=Norm(config.norm, bias=config.norm == "layer"), positions=config.positions,
        max_positions=config.max_positions or 1024, tied_embeddings=config.tied_embeddings, mtp_layers=config.mtp_layers,
        mtp_block=tuple(_by_pattern(config, config.mtp_pattern, mixer, dense)) if config.mtp_pattern else (),
    )  # fmt: skip


def _by_pattern(config: ModelConfig, pattern: str, mixer: Mixer, dense: FeedForward) -> list[Layer]:
    block = state_space(
        config.hidden_size or 1,
        config.state_heads,
        config.state_head_dim,
        config.state_size,
        config.state_groups,
    )
    return layers_of(pattern, block, mixer, dense, _experts(config, dense) if config.experts else None)


def _mixer(config: ModelConfig, h: int) -> Mixer:
    heads = config.heads or max(h // 64, 1)
    bias = config.bias
    qkv_bias = bias if config.qkv_bias is None else config.qkv_bias
    if config.kv_lora_rank is not None:
        nope, rope = config.qk_nope_head_dim or 128, config.qk_rope_head_dim or 64
        return LatentAttention(
            heads,
            config.q_lora_rank,
            config.kv_lora_rank,
            nope,
            rope,
            config.v_head_dim or nope,
            qkv_bias,
            bias,
        )
    if config.head_dim is None and h % heads:
        near = next(n for n in range(heads, 0, -1) if h % n == 0)
        raise InputError(
            f"heads = {heads}",
            where="[model]",
            rule=f"must divide hidden_size = {h:,}",
            nearest=f"heads = {near}",
        )
    kv_heads = config.kv_heads or heads
    if heads % kv_heads:
        near = next(n for n in range(min(kv_heads, heads), 0, -1) if heads % n == 0)
        raise InputError(
            f"kv_heads = {kv_heads}",
            where="[model]",
            rule=f"must divide heads = {heads}",
            nearest=f"kv_heads = {near}",
        )
    return Attention(
        heads, kv_heads, config.head_dim or h // heads, qkv_bias, bias, config.qk_norm, window=config.window
    )


def _experts(config: ModelConfig, dense: FeedForward) -> Experts:
    count, active, width = (
        config.experts or 1,
        config.active_experts or 1,
        config.expert_feed_forward or dense.width,
    )
    if active > count:
        raise InputError(
            f"active_experts = {active}",
            where="[model]",
            rule=f"must not exceed experts = {count}",
            nearest=str(count),
        )
    shared = config.shared_feed_forward or config.shared_experts * width
    return Experts(
        count, active, width, config.gated, config.bias,
        shared=FeedForward(shared, config.gated, config.bias, config.activation) if shared else None,
        activation=config.activation, latent_size=config.expert_latent_size, latent_bias=config.bias,
    )  # fmt: skip
