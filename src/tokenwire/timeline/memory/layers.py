"""What one layer keeps of one micro-batch for its backward: every tensor that autograd saves, by the module that saves it.

The accounting is that of Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, section 4
(34·s·b·h + 5·a·s²·b bytes a layer), tensor by tensor, so that it holds for grouped heads, gated feed-forward, latent
attention, experts, flash attention and layers without dropout too. Symbols: ``frame``; a, g heads and KV heads, d head dim.
With sequence parallelism a column-parallel product keeps the rank's own shard of its input and gathers it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenwire.model.architecture import (
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    StateSpace,
    TokenMixer,
    Weight,
)
from tokenwire.timeline.memory.adapters import kept_beside_frozen
from tokenwire.timeline.memory.experts import experts
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.saved import Saved, product_input, saved

KORTHIKANTI = "Korthikanti et al. 2022, section 4.1"
_SCAN = "megatron-core 0.16.1, ssm/mamba_mixer.py; state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn"
_ENGINE = "NVIDIA/TransformerEngine, transformer_engine/pytorch"


@dataclass(frozen=True)
class LayerActivations:
    """What a layer keeps: all of it, and what of it full recomputation keeps (its input)."""

    saved: tuple[Saved, ...]

    @property
    def total(self) -> int:
        """Return the bytes of one micro-batch."""
        return sum(one.size for one in self.saved)


def layer_activations(frame: Frame, layer: Layer) -> LayerActivations:
    """Return what a layer keeps of one micro-batch without recomputation of all of it; ``selective`` is taken off."""
    return LayerActivations(tuple(_without(frame, layer, tuple(everything(frame, layer)))))


def everything(frame: Frame, layer: Layer) -> Iterator[Saved]:
    """Yield what a layer keeps where nothing is recomputed."""
    return kept_beside_frozen(frame, layer, _everything(frame, layer))


def _everything(frame: Frame, layer: Layer) -> Iterator[Saved]:
    if layer.mixer is not None:
        yield from norm(frame, "input norm")
        yield from _mixer(frame, layer)
        yield from dropout(frame, "dropout after attention")
    if layer.feed_forward is not None:
        if not layer.parallel:
            yield from norm(frame, "feed-forward norm")
        if isinstance(layer.feed_forward, TokenMixer):
            yield _described(frame, "feed-forward", layer.feed_forward.weights)
        elif isinstance(layer.feed_forward, Experts):
            yield from experts(frame, layer.feed_forward)
        else:
            yield from feed_forward(frame, layer.feed_forward, "feed-forward")
        yield from dropout(frame, "dropout after feed-forward")


def norm(frame: Frame, name: str) -> Iterator[Saved]:
    """Yield what a norm keeps: its input, its statistics, and its output where a product needs it."""
    numbers = 4 if frame.arch.norm.kind == "rms" else 8
    yield saved(frame, "norm", f"{name}: its input, the residual", "T'·h·e", frame.residual, KORTHIKANTI)
    yield saved(frame, "norm", f"{name}: statistics", f"{numbers}·T'", numbers * frame.outside, f"{_ENGINE}/module/layernorm_linear.py")
    if frame.dialect == "megatron":
        yield product_input(frame, "norm out", f"{name}: its output, input of the products", "T'·h", frame.outside * frame.arch.hidden_size, KORTHIKANTI)
    else:
        # torch's tensor parallelism keeps the gathered input of the products.
        size = frame.tokens * frame.arch.hidden_size * frame.item
        yield saved(frame, "norm out", f"{name}: its output, input of the products", "T·h·e", size, "torch 2.13, torch/distributed/tensor/parallel")


def dropout(frame: Frame, name: str) -> Iterator[Saved]:
    """Yield the mask of a dropout of the residual, where there is one."""
    if frame.hidden_dropout:
        yield saved(frame, "dropout", f"{name}: mask", "T'·h", frame.outside * frame.arch.hidden_size, KORTHIKANTI)


def _mixer(frame: Frame, layer: Layer) -> Iterator[Saved]:
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        yield from _attention(frame, mixer)
    elif isinstance(mixer, LatentAttention):
        yield from _latent(frame, mixer)
    elif isinstance(mixer, StateSpace):
        yield from _state_space(frame, mixer)
    elif isinstance(mixer, DeltaNet):
        width = 3 * mixer.key_heads * mixer.key_head_dim + 3 * mixer.value_heads * mixer.value_head_dim
        yield saved(frame, "core", "delta net: projections, their convolution, output", "2·T·w/t·e",
                    2 * frame.tokens * width // frame.plan.tp * frame.item, "estimated", w=width)  # fmt: skip


    elif isinstance(mixer, TokenMixer):
        yield _described(frame, mixer.kind, mixer.weights)
    if layer.extra is not None:
        yield _described(frame, "what only this family has", layer.extra.weights)
        if (own := layer.extra.attention) is not None:
            yield from core(frame, own.heads, own.heads * (own.value_head_dim or own.head_dim))


def _described(frame: Frame, name: str, weights: tuple[Weight, ...]) -> Saved:
    """Return what tensors that are described one by one keep: the results of their products, once before and once after what acts on them."""
    t = frame.plan.tp
    width = sum(weight.outputs // (t if weight.split == "column" else 1) for weight in weights if 1 not in weight.shape[:-1])
    return saved(frame, "core", f"{name}: results of its products", "2·T·w·e", 2 * frame.tokens * width * frame.item, "estimated", w=width)


def _attention(frame: Frame, a: Attention) -> Iterator[Saved]:
    t, T, e, d_v = frame.plan.tp, frame.tokens, frame.item, a.value_head_dim or a.head_dim
    # Attention that is not fused works on keys and values that are repeated for every head.
    groups = a.heads if frame.dialect == "megatron" and frame.software.attention == "unfused" else a.kv_heads
    # Keys and values of an earlier layer are kept there.
    width = a.heads * a.head_dim + (0 if a.kv_weights == "none" else groups * (a.head_dim + d_v))
    more = {"w": width}
    if a.qk_norm != "none":
        q_and_k = (a.heads + a.kv_heads) * a.head_dim
        yield saved(frame, "qkv", "query and key norms: their input", "T·k/t·e", T * q_and_k // t * e, KORTHIKANTI, k=q_and_k)
    yield saved(frame, "qkv", "queries, keys and values", "T·w/t·e", T * width // t * e, KORTHIKANTI, **more)
    yield from core(frame, a.heads, a.heads * d_v)
    if a.gate:
        yield saved(frame, "core", "output gate", "2·T·w/t·e", 2 * T * a.heads * d_v // t * e, "estimated", w=a.heads * d_v)
    yield product_input(frame, "projection", "output projection: its input", "T·w/t", T * a.heads * d_v // t, KORTHIKANTI, w=a.heads * d_v)


def core(frame: Frame, heads: int, width: int) -> Iterator[Saved]:
    """Yield what the attention itself keeps beside queries, keys and values: scores, or flash attention's output and sums."""
    t, T, e = frame.plan.tp, frame.tokens, frame.item
    s, b = frame.plan.training.sequence_length, frame.plan.training.micro_batch
    how = frame.software.attention
    if how == "unfused":
        scores = b * heads // t * (s // frame.plan.cp) * s
        # The fallback of the fused softmax makes it in fp32 (megatron-core 0.16.1, fusions/fused_softmax.py, forward_torch_softmax).
        wide = frame.software.transformer_impl == "local" and not frame.software.masked_softmax_fusion
        z = max(e, 4) if wide else e
        yield saved(frame, "core", "softmax of the scores", "b·a/t·s/c·s·z", scores * z, KORTHIKANTI, a=heads, z=z)
        if frame.attention_dropout:
            yield saved(frame, "core", "dropout of the scores: mask and result", "b·a/t·s/c·s·(1+e)", scores * (1 + e), KORTHIKANTI, a=heads)
        return
    yield saved(frame, "core", "sums of the softmax, fp32", "4·T·a/t", 4 * T * heads // t,
                "Dao et al., FlashAttention, 2022, algorithm 1", a=heads)  # fmt: skip
    if frame.plan.cp > 1 and "a2a" in str(frame.option("cp_comm_type", "")):
        yield saved(frame, "core", "output before heads and sequence change places again", "T·w/t·e", T * width // t * e,
                    f"{_ENGINE}/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A", w=width)  # fmt: skip
    if how == "flash" and b > 1 and frame.dialect == "megatron":
        # With one sequence a micro-batch both layouts are the same memory.
        yield saved(frame, "core", "output as FlashAttention lays it out, before it is put in order again", "T·w/t·e",
                    T * width // t * e, f"{_ENGINE}/attention/dot_product_attention/backends.py, FlashAttention", w=width)  # fmt: skip


def _latent(frame: Frame, a: LatentAttention) -> Iterator[Saved]:
    t, T, T1, e = frame.plan.tp, frame.tokens, frame.outside, frame.item
    d_qk = a.qk_nope_head_dim + a.qk_rope_head_dim
    source = "megatron-core 0.16.1, transformer/multi_latent_attention.py"
    if a.q_lora_rank is not None:
        r = a.q_lora_rank
        yield saved(frame, "qkv", "query down-projection: result, normalised", "2·T'·r·e", 2 * T1 * r * e, source, r=r)
    r = a.kv_lora_rank
    yield saved(frame, "qkv", "KV down-projection: result, normalised", "2·T'·r·e", 2 * T1 * r * e, source, r=r)
    q, k, v = a.heads * d_qk, a.heads * d_qk, a.heads * a.v_head_dim
    width = q + k + v
    yield saved(frame, "mla up", "queries, keys and values", "T·w/t·e", T * width // t * e, source, w=width)
    yield from core(frame, a.heads, v)
    yield product_input(frame, "projection", "output projection: its input", "T·w/t", T * v // t, KORTHIKANTI, w=v)


def _state_space(frame: Frame, m: StateSpace) -> Iterator[Saved]:
    # The fused scan keeps its input and its output before the gate, and makes its convolution again.
    width = 2 * m.inner_size + 2 * m.groups * m.state_size + m.heads
    i, t, T, e = m.inner_size, frame.plan.tp, frame.tokens, frame.item
    yield saved(frame, "core", "state-space block: gate, input, B, C and dt", "T·w/t·e", T * width // t * e, _SCAN, w=width)
    yield saved(frame, "core", "state-space block: output before and after the gate", "2·T·i/t·e", 2 * T * i // t * e, _SCAN, i=i)
    yield product_input(frame, "projection", "state-space block: normalised output, input of its projection", "T·i/t", T * i // t, _SCAN, i=i)


def feed_forward(frame: Frame, f: FeedForward, name: str) -> Iterator[Saved]:
    """Yield what a dense feed-forward part keeps: what its activation takes in, and what it puts out."""
    t, T, e = frame.plan.tp, frame.tokens, frame.item
    lanes = 2 if f.gated else 1
    more = {"f": f.width}
    kind = "mlp" if name == "feed-forward" else "shared"
    if f.activation != "relu2":
        # The square of a ReLU needs the ReLU's result only, which stands below.
        yield saved(frame, kind, f"{name}: input of the activation", f"{lanes}·T·f/t·e" if f.gated else "T·f/t·e",
                    lanes * T * f.width // t * e, KORTHIKANTI, **more)  # fmt: skip
    # torch's partitioner computes a gated activation again in the backward from the gate, which it keeps (test_compiled.py).
    fused = frame.fused_activation or frame.blocks_compiled
    extra = f.activation == "relu2" or (f.gated and not fused)
    if extra:
        yield saved(frame, kind, f"{name}: activation before it is multiplied", "T·f/t·e", T * f.width // t * e, KORTHIKANTI, **more)
    yield product_input(frame, kind, f"{name}: input of the down-projection", "T·f/t", T * f.width // t, KORTHIKANTI, **more)


def _without(frame: Frame, layer: Layer, all_saved: tuple[Saved, ...]) -> Iterator[Saved]:
    """Yield what selective recomputation leaves (megatron-core 0.16.1, TransformerConfig.recompute_modules)."""
    if frame.option("activation_checkpoint_mode") == "selective" and frame.option("selective_ac_option") == "op":
        yield from _by_operator(frame, layer)
        return
    if frame.option("recompute_granularity") != "selective":
        yield from all_saved
        return
    modules = set(frame.option("recompute_modules", ("core_attn",)))
    gone: set[str] = set()
    gone |= {"core"} if "core_attn" in modules else set()
    gone |= {"mlp"} if "mlp" in modules else set()
    gone |= {"shared"} if modules & {"shared_experts", "moe"} else set()
    gone |= {"experts", "experts in", "router"} if "moe" in modules else set()
    gone |= {"mla up"} if "mla_up_proj" in modules else set()
    gone |= {"norm out"} if "layernorm" in modules else set()
    gone |= {"expert act"} if modules & {"moe_act", "moe"} else set()
    for one in all_saved:
        if one.kind not in gone:
            yield one


def _by_operator(frame: Frame, layer: Layer) -> Iterator[Saved]:
    # Every second product is kept, and attention's output; of queries, keys, values, output, gate, up, down: 1, 3, 5, 7.
    t, T, e, source = frame.plan.tp, frame.tokens, frame.item, "torchtitan v0.2.2, torchtitan/distributed/activation_checkpoint.py"
    yield saved(frame, "input", "the layer's input", "T'·h·e", frame.residual, source)
    if isinstance(layer.mixer, Attention):
        a = layer.mixer
        q, v = a.heads * a.head_dim, a.kv_heads * (a.value_head_dim or a.head_dim)
        yield saved(frame, "qkv", "queries and values", "T·w/t·e", T * (q + v) // t * e, source, w=q + v)
        yield saved(frame, "core", "attention's output, sums of the softmax", "T·w/t·e+4·T·a/t", T * q // t * e + 4 * T * a.heads // t, source,
                    w=q, a=a.heads)  # fmt: skip
    if isinstance(layer.feed_forward, FeedForward):
        f, h = layer.feed_forward.width, frame.arch.hidden_size
        lanes = f // t + h if layer.feed_forward.gated else f // t
        yield saved(frame, "mlp", "results of the first product and of the down-projection", "T·w·e", T * lanes * e, source, w=lanes)
    elif isinstance(layer.feed_forward, Experts):
        yield from experts(frame, layer.feed_forward)


def layer_input(frame: Frame) -> int:
    """Return the bytes that full recomputation keeps of a layer: its input (cut by t with ``distribute_saved_activations``)."""
    if frame.option("distribute_saved_activations", False):
        return frame.residual // frame.plan.tp
    return frame.residual
