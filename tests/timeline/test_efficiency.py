"""Shares of the peak: measured, near, generic; and what cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig
from tokenwire.fabric.gpus import known
from tokenwire.timeline import accelerator, accelerator_of
from tokenwire.timeline.compute import seconds
from tokenwire.timeline.efficiency import attention_share, generic_share, grouped_share, matmul_share
from tokenwire.timeline.kernels import Operator

SIZES = st.integers(1, 1 << 17)


def test_the_measured_shape_is_found_and_near_ones_lie_between() -> None:
    gpu = accelerator("B200")
    assert matmul_share(gpu, "forward", 4096, 8192, 10240) == (0.6452, "measured")
    share, how = matmul_share(gpu, "forward", 4096, 8192, 9000)
    assert how == "near"
    assert 0.3 < share < 0.7


def test_far_shapes_fall_back_on_the_curve() -> None:
    assert matmul_share(accelerator("B200"), "forward", 8, 8, 8)[1] == "generic"
    assert matmul_share(accelerator("H100 SXM"), "forward", 4096, 8192, 10240)[1] == "generic"


def test_experts_of_the_table() -> None:
    # 40 experts of 616 rows, 5120 to 3072: the row of the table
    share, how = grouped_share(accelerator("B200"), "forward", 40, 616, 5120, 3072)
    assert how == "measured"
    assert share == pytest.approx(0.462, abs=1e-3)
    # the gradient of its input is the same product the other way round
    assert grouped_share(accelerator("B200"), "input", 40, 616, 3072, 5120)[1] == "measured"


def test_attention_counts_the_causal_half() -> None:
    share, how = attention_share(accelerator("B200"), False, 4096, 64, 8, 128, 128)
    assert how == "measured"
    assert share == pytest.approx((0.8715 + 0.8351) / 4, abs=1e-3)


@given(SIZES, SIZES, SIZES, st.sampled_from(known()))
def test_the_curve_is_a_share(m: int, k: int, n: int, name: str) -> None:
    gpu = accelerator(name)
    assert 0 < generic_share(gpu, m, k, n) <= gpu.matmul


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_bytes_take_longer(a: int, b: int) -> None:
    gpu = accelerator("A100 SXM")
    one = Operator("x", "norm", "memory", "forward", 0, min(a, b))
    more = Operator("x", "norm", "memory", "forward", 0, max(a, b))
    assert seconds(one, gpu, "bf16")[0] <= seconds(more, gpu, "bf16")[0]


def test_every_gpu_of_the_catalogs_of_clusters_is_known() -> None:
    from tokenwire.fabric import preset, presets

    for name in presets():
        facts = preset(name)
        assert accelerator(facts.gpu, facts.peak_flops).peak("bf16") == facts.peak_flops


def test_an_unknown_gpu_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="known are a100"):
        accelerator("Voodoo 2")


def test_a_gpu_of_which_enough_is_said_is_timed() -> None:
    cluster = ClusterConfig.model_validate(
        {"gpu": "X900", "peak_flops": "1500 TFLOP/s", "memory_rate": "5 TB/s", "processors": 160, "matmul_efficiency": 0.5}
    )
    gpu = accelerator_of(cluster.facts)
    assert (gpu.peak("bf16"), gpu.memory_rate, gpu.processors, gpu.matmul) == (1.5e15, 5e12, 160, 0.5)
    assert generic_share(gpu, 1 << 14, 1 << 14, 1 << 14) <= 0.5
    # MI300X (1,307 TFLOP/s) has the nearest peak of those known: 1,500/1,307 of its 8-bit peak.
    assert gpu.peaks["fp8"] == pytest.approx(accelerator("MI300X").peaks["fp8"] * 1500 / 1307)
    assert "mi300x" in gpu.assumed[0]


def test_another_gpu_brings_its_own_peak() -> None:
    assert ClusterConfig(preset="dgx-h100-superpod", gpu="A100 SXM").facts.peak_flops == 312e12
    assert ClusterConfig(preset="dgx-h100-superpod").facts.peak_flops == 989e12


@pytest.mark.parametrize("said", [{}, {"peak_flops": "1500 TFLOP/s"}, {"peak_flops": "1500 TFLOP/s", "gpu_memory": "96 GiB"}])
def test_a_gpu_of_which_too_little_is_said_names_what_to_give(said: dict[str, str]) -> None:
    with pytest.raises(InputError, match="give gpu_memory, memory_rate, peak_flops"):
        accelerator_of(ClusterConfig.model_validate({"gpu": "X900", **said}).facts)
