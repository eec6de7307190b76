"""What a model is made of: an embedding, a tuple of layers, a head. Sizes only, no weights.

A layer is a mixer (attention of some kind, or a state-space block) and a feed-forward part (dense or experts),
either of which may be missing; hybrids are a tuple of different layers. ``tensors`` lists every parameter tensor with
its shape; everything else (counts, shards, gradients, buckets) is read off that list.

Symbols: h hidden, L layers, V vocabulary, a heads, g KV heads, d head dim, f feed-forward width, E experts, k active.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from math import prod
from typing import Literal

Positions = Literal["rotary", "learned", "sinusoidal", "alibi", "none"]
Split = Literal["column", "row", "vocabulary", "replicated"]
"""How tensor parallelism cuts a tensor: by its output rows ("column-parallel"), its inputs, its vocabulary, or not."""


@dataclass(frozen=True)
class Weight:
    """A tensor that few families have: its name in its layer, its shape, and how tensor parallelism cuts it.

    ``multiplies`` says that each token is multiplied with it. ``held`` False is the tensor of an earlier layer, used once more
    (Zamba 2's shared blocks). Outside the layers ``part`` says whether it belongs to the embedding or to the head.
    """

    name: str
    shape: tuple[int, ...]
    split: Split = "replicated"
    multiplies: bool = True
    held: bool = True
    part: str = "mixer"

    @property
    def products(self) -> int:
        """Return the multiplications for one token: the elements of a matrix, none for a vector or a table of rows."""
        return (
            prod(self.shape) if self.multiplies and len(self.shape) > 1 and self.split != "vocabulary" else 0
        )

    @property
    def outputs(self) -> int:
        """Return the numbers that a product with it puts out for one token."""
        return prod(self.shape[:-1]) if self.products else 0


@dataclass(frozen=True)
class LeftOut:
    """A field of a configuration that does not count here: a ``part`` of the model, a field that is ``unknown``, or an
    ``effect`` on FLOPs, time or memory that is not predicted."""

    field: str
    kind: Literal["part", "unknown", "effect"]
    what: str


@dataclass(frozen=True)
class Norm:
    """A normalisation over ``size`` numbers: RMSNorm has a weight, LayerNorm also a bias (unless said otherwise)."""

    kind: Literal["rms", "layer"] = "rms"
    bias: bool = False
    weight: bool = True


@dataclass(frozen=True)
class Attention:
    """Multi-head attention with grouped KV heads; ``fused_qkv`` says that the three projections are one tensor.

    ``qk_norm`` normalises queries and keys: over d with one weight for all heads (``head``), over d with a weight for
    each head (``each``), or over all heads together (``full``). ``value_head_dim`` is d of the values where it differs,
    ``gate`` an output gate as wide as the queries (Qwen 3 Next); ``key_bias`` False leaves the keys out of ``qkv_bias``.
    ``kv_weights``: ``keys`` has values that are the keys, ``none`` takes both from an earlier layer (Gemma 3n and 4).
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "each", "full"] = "none"
    sinks: bool = False
    fused_qkv: bool = False
    window: int | None = None
    key_bias: bool = True
    qk_norm_bias: bool = False
    value_head_dim: int | None = None
    gate: bool = False
    kv_weights: Literal["both", "keys", "none"] = "both"

    @property
    def value_width(self) -> int:
        """Return the numbers of all values of a token that a projection of their own makes."""
        return self.kv_heads * (self.value_head_dim or self.head_dim) if self.kv_weights == "both" else 0

    @property
    def key_width(self) -> int:
        """Return the numbers of all keys of a token that a projection makes."""
        return 0 if self.kv_weights == "none" else self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Indexer:
    """What chooses the ``top_k`` tokens that attention looks at (DeepSeek V3.2): small heads that score every token."""

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek V2/V3); ``q_lora_rank`` None means an uncompressed query."""

    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    indexer: Indexer | None = None


@dataclass(frozen=True)
class StateSpace:
    """A Mamba (version 1) or Mamba-2 block."""

    version: Literal[1, 2]
    inner_size: int
    state_size: int
    conv_kernel: int
    dt_rank: int = 0
    heads: int = 0
    head_dim: int = 0
    groups: int = 1
    bias: bool = False
    conv_bias: bool = True
    inner_norms: bool = False


@dataclass(frozen=True)
class FeedForward:
    """A dense feed-forward part; gated has gate and up projections (SwiGLU, GeGLU), one tensor where ``fused``."""

    width: int
    gated: bool
    bias: bool = False
    activation: str = "gelu"
    fused: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: a router, ``count`` experts of ``width``, of which ``active`` see each token.

    ``correction_bias`` (DeepSeek V3's balance of the router) is a buffer,
    not a parameter, unless ``correction_parameter`` (ERNIE 4.5). ``latent_size`` is the width
    the experts work on where tokens are projected down before and up after (Nemotron 3). ``identities`` are experts without
    weights, which the router may choose too (LongCat): ``active`` is the mean of the others.
    """

    count: int
    active: int
    width: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    correction_parameter: bool = False
    shared: FeedForward | None = None
    shared_gate: bool = False
    activation: str = "silu"
    latent_size: int | None = None
    latent_bias: bool = False
    identities: int = 0


@dataclass(frozen=True)
class DeltaNet:
    """A gated delta net (Qwen 3 Next's linear attention): fused projections for q, k, v and gate, and for beta and a."""

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int = 4


@dataclass(frozen=True)
class TokenMixer:
    """A mixer that is described by its tensors: column-parallel products, what happens by channel or head, a row-parallel product.

    ``state`` counts the multiplications of its state for one token; tensor parallelism must divide ``heads``.
    """

    kind: Literal["short convolution", "lightning attention", "delta attention", "gated recurrence", "linear"]
    weights: tuple[Weight, ...]
    heads: int
    state: int = 0


Mixer = Attention | LatentAttention | StateSpace | DeltaNet | TokenMixer


@dataclass(frozen=True)
class Extra:
    """What a layer has besides mixer and feed-forward part: tensors, and an attention whose projections are among them."""

    weights: tuple[Weight, ...]
    attention: Attention | None = None


@dataclass(frozen=True)
class Layer:
    """One layer: mixer and feed-forward, each optional; ``norms`` counts the norms of size h in it.

    ``parallel`` is the GPT-NeoX/Falcon/Phi arrangement, attention and feed-forward side by side.
    """

    mixer: Mixer | None
    feed_forward: FeedForward | Experts | TokenMixer | None
    norms: int = 2
    parallel: bool = False
    extra: Extra | None = None

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Return the tensors that are described one by one, of the mixer and of ``extra``."""
        own = sum((part.weights for part in (self.mixer, self.feed_forward) if isinstance(part, TokenMixer)), ())
        return own + (self.extra.weights if self.extra else ())


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters (LoRA) of ``rank`` numbers beside the products that ``modules`` names, which alone are trained."""

    rank: int
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Architecture:
    """A whole model: sizes only. ``layers`` has one entry a layer, in order; equal entries are the same object."""

    name: str
    family: str
    vocabulary_size: int
    hidden_size: int
    layers: tuple[Layer, ...]
    norm: Norm
    positions: Positions = "rotary"
    max_positions: int = 0
    tied_embeddings: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    # Rows that the table of learned positions has besides max_positions (OPT: 2).
    position_offset: int = 0
    # Width of the token table where it is not h (OPT-350m), with a projection in and one out.
    embedding_size: int | None = None
    # Modules that predict further tokens (DeepSeek V3's MTP), trained but not counted by Hugging Face.
    mtp_layers: int = 0
    # Layers of each such module; none: one like the model's last (Nemotron 3: attention, then experts).
    mtp_block: tuple[Layer, ...] = ()
    rope_theta: float = 10_000.0
    adapters: Adapters | None = None
    # Tensors outside the layers that few families have.
    extra: tuple[Weight, ...] = ()
    # What one layer takes from another that a stage of a pipeline would have to send besides activations; none: it can be cut.
    between_layers: str = ""
    # What the configuration has that is not counted.
    left_out: tuple[LeftOut, ...] = ()

    def __hash__(self) -> int:
        """Return the hash of all fields, worked out once: many things are kept by model."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, one.name) for one in fields(self)))

    def __getstate__(self) -> dict[str, object]:
        """Return the fields without the hash: those of texts differ from process to process."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @cached_property
    def kinds(self) -> tuple[Layer, ...]:
        """Return the layers that differ, each once, in the order in which they first come."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def next_token_block(self) -> tuple[Layer, ...]:
        """Return the layers of a module that predicts a further token."""
        return self.mtp_block or self.layers[-1:]


@dataclass(frozen=True)
class Tensor:
    """One parameter tensor: where it sits, its full shape, and how tensor parallelism cuts it.

    ``layer`` is the index of its layer, or None for embedding, final norm and head. ``part`` is one of ``embedding``,
    ``position``, ``mixer``, ``feed_forward``, ``router``, ``experts``, ``shared_experts``, ``norm``, ``final_norm``,
    ``head``, ``mtp``, ``adapter``. Weights have shape (outputs, inputs), as torch's Linear keeps them; ``split_dim`` is the
    dimension that is cut, None where the tensor is replicated. Experts have a leading dimension of E, cut by expert
    parallelism.
    """

    name: str
    part: str
    shape: tuple[int, ...]
    layer: int | None = None
    split: Split = "replicated"
    split_dim: int | None = None

    @property
    def elements(self) -> int:
        """Return the number of elements of the full tensor."""
        product = 1
        for size in self.shape:
            product *= size
        return product
