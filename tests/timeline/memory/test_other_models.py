"""An encoder beside a decoder, state-space layers, and Megatron-FSDP, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tokenwire.model import ModelConfig, architecture
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Software, memory
from tokenwire.timeline.memory.prediction import StageMemory

FIELDS = {"hidden_size": 8, "heads": 2, "feed_forward": 32, "vocabulary_size": 128, "max_positions": 16, "layers": 1}
SOFTWARE = Software(gpu="A100", heads="t5", encoder_layers=2, encoder_sequence_length=16, attention_backend="unfused",
                    attention_dropout=0, hidden_dropout=0)  # fmt: skip


def found(software: Software, gpus: int = 1, **fields: Any) -> StageMemory:
    arch = architecture(ModelConfig(**{**FIELDS, **fields}))
    training = TrainingConfig(sequence_length=4, micro_batch=2, global_batch=2 * gpus, precision="bf16")
    return memory(arch, resolve(read_plan({"use_distributed_optimizer": True}), training, arch, gpus), software).stages[0]


def test_tensors_of_encoder_and_of_the_attention_to_it() -> None:
    # A layer of the encoder: two norms 2·16, qkv 24·8+24, output 64+8, up 32·8+32, down 8·32+8 = 872; two of them, a final norm 16.
    # The decoder's layer: a norm 16, queries 64+8, keys and values 128+16, output 64+8 = 304. T5's head has a bias: 128.
    more = 2 * 872 + 16 + 304 + 128
    weights = [next(p.size for p in found(s).parts if p.kind == "weights") for s in (SOFTWARE, Software(gpu="A100"))]
    # Weights stand in one block of a multiple of 512 bytes.
    assert weights[0] == -(-(2 * more + 2 * elements()) // 512) * 512
    assert weights[1] == -(-2 * elements() // 512) * 512


def elements() -> int:
    # Embedding 128·8, positions 16·8, a layer 872, final norm 16.
    return 1024 + 128 + 872 + 16


def test_what_the_attention_to_the_encoder_keeps() -> None:
    parts = {p.what: p.size for p in found(SOFTWARE).parts}
    # T = 2·4 queries of 8, T_e = 2·16 keys and values of 16, 2 bytes each.
    assert parts["attention to the encoder: queries, keys and values, 1 layers"] == (8 * 8 + 32 * 16) * 2
    # Scores: 2 sequences, 2 heads, 4 by 16, 2 bytes.
    assert parts["attention to the encoder: softmax of the scores, and their dropout: mask and result, 1 layers"] == 2 * 2 * 4 * 16 * 2
    # The encoder's residual: 2·16 tokens of 8, 2 bytes, at two layers.
    assert parts["encoder: input norm: its input, the residual, 2 layers"] == 2 * 32 * 8 * 2


def test_without_an_encoder_nothing_is_added() -> None:
    assert not any("encoder" in p.what for p in found(Software(gpu="A100")).parts)


def test_a_state_space_layer_keeps_what_its_scan_takes_and_gives() -> None:
    stage = found(Software(gpu="A100"), layers=1, layer_pattern="M", state_head_dim=8, state_size=4, state_groups=1)
    parts = {p.what: p.size for p in stage.parts}
    # Inner 16, heads 2: gate and input 2·16, B and C 2·4, dt 2 = 42 numbers a token, 8 tokens, 2 bytes.
    assert parts["state-space block: gate, input, B, C and dt, 1 layers, 1 micro-batches"] == 42 * 8 * 2
    assert parts["state-space block: output before and after the gate, 1 layers, 1 micro-batches"] == 2 * 16 * 8 * 2


def test_megatron_fsdp_cuts_weights_and_gradients_too() -> None:
    stage = found(Software(gpu="A100", data_parallel_sharding_strategy="optim_grads_params"), gpus=4)
    of = {kind: stage.of(kind, "between") for kind in ("weights", "gradients", "optimizer")}
    # 2, 2 and 12 bytes of each element, a quarter of them; the buffers are rounded to 512.
    size = elements() // 4
    assert of == {"weights": -(-2 * size // 512) * 512, "gradients": -(-2 * size // 512) * 512, "optimizer": 12 * size}
    gathered = {p.what: p.size for p in stage.parts if "gathered" in p.what}
    # Two layers of 872 and what stands outside of layers: embedding 1024, positions 128.
    assert gathered["parameters of a layer, gathered, and of the next"] == 2 * 2 * 872
    assert gathered["parameters of embedding and head, gathered"] == 2 * (1024 + 128)


@pytest.mark.parametrize(("fused", "each"), [(True, 2), (False, 4)])
def test_a_softmax_that_is_not_fused_is_kept_in_fp32(fused: bool, each: int) -> None:
    stage = found(Software(gpu="A100", transformer_impl="local", masked_softmax_fusion=fused))
    # 2 sequences, 2 heads, 4 by 4.
    assert next(p.size for p in stage.parts if p.what.startswith("softmax of the scores")) == 2 * 2 * 4 * 4 * each
