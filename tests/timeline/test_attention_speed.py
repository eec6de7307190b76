"""Attention as it was measured alone: exact lengths, lengths between, narrow heads, windows in 16 and in 8 bits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.timeline.accelerator import accelerator
from tokenwire.timeline.attention_speed import Shape, attention_speed, seen

GB200, GB300 = accelerator("GB200"), accelerator("GB300")
LLAMA = Shape(4096, 64, 8, 128, 128)


def tera(gpu: str, precision: str, backward: bool, shape: Shape) -> float:
    return attention_speed(accelerator(gpu), precision, backward, shape)[0] / 1e12


@given(st.sampled_from(("GB200", "GB300", "B300", "H100 SXM")), st.sampled_from(("bf16", "mxfp8")), st.booleans(), st.integers(2048, 16_384))
def test_twice_the_tokens_take_two_and_a_half_to_four_and_a_half_times_as_long(gpu: str, precision: str, backward: bool, s: int) -> None:
    # Four times the scores; longer sequences run somewhat faster per score, or a little slower where the clock falls.
    short, long = (length * length / tera(gpu, precision, backward, LLAMA._replace(s=length)) for length in (s, 2 * s))
    assert 2.5 < long / short < 4.5


@pytest.mark.parametrize("precision", ["bf16", "mxfp8"])
def test_a_backward_is_slower_per_product_than_a_forward(precision: str) -> None:
    for gpu in ("GB200", "GB300"):
        assert tera(gpu, precision, True, LLAMA) < tera(gpu, precision, False, LLAMA)
    assert attention_speed(GB300, precision, False, LLAMA)[1] == "measured"


def test_between_two_lengths_along_the_logarithm() -> None:
    # half way from 4,096 to 8,192 on the logarithm: (1703 + 1856) / 2
    speed, how = attention_speed(GB300, "bf16", False, LLAMA._replace(s=round(4096 * 2**0.5)))
    assert speed / 1e12 == pytest.approx(1779.5, rel=1e-4)
    assert how == "near"


def test_beyond_what_was_measured_as_at_its_end() -> None:
    assert tera("GB300", "bf16", True, LLAMA._replace(s=10**6)) == tera("GB300", "bf16", True, LLAMA._replace(s=32768))
    assert tera("GB300", "bf16", True, LLAMA._replace(s=128)) == tera("GB300", "bf16", True, LLAMA._replace(s=2048))


def test_half_as_wide_heads_are_slower_by_the_exponentials() -> None:
    assert tera("GB300", "bf16", False, LLAMA._replace(d=64, d_v=64)) == pytest.approx(0.6 * 1703)
    assert tera("GB300", "bf16", False, LLAMA._replace(d=96, d_v=96)) == pytest.approx(0.8 * 1703)


def test_a_window_in_8_bits_takes_as_long_backward_as_the_whole_mask() -> None:
    narrow = Shape(4096, 64, 8, 64, 64)
    windowed = narrow._replace(window=128)
    # 2·d products a score and pass: both take scores / speed seconds
    whole, part = (seen(4096, shape.window) / tera("GB200", "mxfp8", True, shape) for shape in (narrow, windowed))
    assert whole == pytest.approx(part)
    # in 16 bits blocks outside of it are left out
    assert seen(4096, 128) / tera("GB200", "bf16", True, windowed) < 0.5 * seen(4096, None) / tera("GB200", "bf16", True, narrow)


def test_a_window_longer_than_the_sequence_is_none() -> None:
    assert tera("GB200", "bf16", False, LLAMA._replace(window=8192)) == tera("GB200", "bf16", False, LLAMA)


def test_other_gpus_keep_the_curve() -> None:
    # H100 forward: 0.75 of 989 TFLOP/s, 4096 / 5120 of it
    assert tera("H100 SXM", "bf16", False, LLAMA) == pytest.approx(0.75 * 989 * 0.8)
    assert attention_speed(accelerator("H100 SXM"), "bf16", False, LLAMA)[1] == "generic"


@given(
    st.sampled_from(("bf16", "fp8", "mxfp8", "fp32")), st.booleans(), st.integers(1, 10**6), st.sampled_from((1, 32, 64, 80, 128, 192, 256)),
    st.sampled_from((0, 1, 128, 1024)),
)  # fmt: skip
def test_always_a_speed_below_the_peak(precision: str, backward: bool, s: int, d: int, window: int) -> None:
    for gpu in (GB200, GB300):
        assert 0 < attention_speed(gpu, precision, backward, Shape(s, 32, 8, d, d, window))[0] <= gpu.peak("fp8")
