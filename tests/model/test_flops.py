"""FLOPs by convention."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenwire.errors import InputError
from tokenwire.model import CONVENTIONS, flops_per_token, parameters, preset, presets
from tokenwire.model.architecture import Adapters


def test_gpt3_by_the_papers():
    # Narayanan et al. 2021, equation 3 without recomputation: 72·L·h²(1 + s/6h + V/12Lh) a token, all s² scores.
    arch, s, h, L, V = preset("gpt3-175b"), 2048, 12288, 96, 50257
    paper = 72 * L * h * h * (1 + s / (6 * h) + V / (12 * L * h))
    assert flops_per_token(arch, s, "megatron-full").value == pytest.approx(paper, rel=1e-12)
    # A causal mask takes half of the scores: 6·L·h·s less.
    assert flops_per_token(arch, s, "megatron").value == pytest.approx(paper - 6 * L * h * s, rel=1e-12)


def test_llama_by_hand():
    # Llama 3.1 8B, s = 8192: h = 4096, q 4096, k and v 1024 each, f 14336 gated, V 128256, 32 layers.
    layer = 4096 * (4096 + 2 * 1024 + 4096) + 2 * 4096 * 8192 / 2 + 3 * 4096 * 14336
    assert flops_per_token(preset("llama-3.1-8b"), 8192, "megatron").value == 6 * (32 * layer + 4096 * 128256)
    n, ne = 8_030_261_248, 128_256 * 4096
    assert flops_per_token(preset("llama-3.1-8b"), 8192, "6N").value == 6 * n
    assert flops_per_token(preset("llama-3.1-8b"), 8192, "palm").value == 6 * n + 12 * 32 * 4096 * 8192
    assert (
        flops_per_token(preset("llama-3.1-8b"), 8192, "torchtitan").value
        == 6 * (n - ne) + 12 * 32 * 4096 * 8192
    )


def test_latent_attention_by_megatrons_formula():
    arch, s = preset("deepseek-v3"), 4096
    h, a = 7168, 128
    mla = (
        1536 * (h + a * 192 + 1)
        + 512 * (h + a * (128 + 128) + 1)
        + h * 64
        + a * 128 * h
        + s * a * 192 / 2
        + s * a * 128 / 2
    )
    # 3 dense layers, 58 with experts, and one more (MTP) with experts, with its norms, projection and logits.
    products = (
        62 * mla
        + 3 * h * (18432 * 3 + 0)
        + 59 * 3 * h * (2048 * 8 + 2048)
        + (3 * h + 2 * h * h)
        + 2 * h * 129280
    )
    assert flops_per_token(arch, s, "megatron").value == 6 * products


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("convention", sorted(CONVENTIONS))
def test_every_figure_explains_itself(name, convention):
    figure = flops_per_token(preset(name, 1000), 2048, convention)
    assert figure.unit == "FLOP"
    assert figure.value > 0
    assert figure.formula
    assert figure.source
    assert figure.values


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "mamba-2.8b", "nemotron-h-8b"])
def test_full_attention_costs_at_least_causal(name):
    arch = preset(name)
    full, half = (flops_per_token(arch, 4096, c).value for c in ("megatron-full", "megatron"))
    assert full > half if name != "mamba-2.8b" else full == half
    assert flops_per_token(arch, 4096, "6N").value == 6 * parameters(arch).active


def test_wrong_input():
    with pytest.raises(InputError, match="unknown FLOP convention '7N'"):
        flops_per_token(preset("gpt2"), 10, "7N")
    with pytest.raises(InputError, match="sequence_length = 0"):
        flops_per_token(preset("gpt2"), 0)


def test_beside_adapters_frozen_products_take_two_thirds():
    arch = preset("llama-3-70b")
    adapted = replace(arch, adapters=Adapters(16, ("linear_qkv",)))
    # A layer: q and output 2·8192², k and v 2·8192·1024, three of 8192·28672; the head; scores of 2·8192·s/2 keep all six.
    frozen = 80 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 128256 * 8192
    scores = 80 * 2 * 8192 * 4096 // 2
    adapters = 80 * 16 * (8192 + 8192 + 2 * 1024)
    assert flops_per_token(adapted, 4096).value == 4 * frozen + 6 * scores + 6 * adapters
    assert flops_per_token(arch, 4096).value == 6 * (frozen + scores)
