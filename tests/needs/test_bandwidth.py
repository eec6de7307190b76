"""Bandwidth: the two bounds satisfy their own definition, and the leaf's share is worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.needs.bandwidth import (
    bandwidth_figures,
    bisection_figure,
    rate_with_overlap,
    rate_without_overlap,
    tolerated_oversubscription,
)

share = st.floats(0.001, 0.999)
size = st.floats(1, 1e15)
time = st.floats(1e-6, 1e4)


@given(B=size, t=time, x=share)
def test_without_overlap_the_share_is_what_was_asked(B: float, t: float, x: float) -> None:
    c = B / rate_without_overlap(B, t, x)
    assert c / (t + c) == pytest.approx(x)


@given(B=size, t=time, x=share)
def test_with_overlap_the_share_is_what_was_asked(B: float, t: float, x: float) -> None:
    c = B / rate_with_overlap(B, t, x)
    assert (c - t) / max(c, t) == pytest.approx(x, abs=1e-9)


@given(B=size, t=time, x=share, y=share)
def test_more_exposed_needs_less(B: float, t: float, x: float, y: float) -> None:
    low, high = sorted((x, y))
    assert rate_without_overlap(B, t, low) >= rate_without_overlap(B, t, high)
    assert rate_with_overlap(B, t, x) <= rate_without_overlap(B, t, x)


def test_figures_by_hand() -> None:
    # 5 GB in a step that computes 1 s, 10 % exposed. Nothing overlaps: 5·0.9/(0.1·1) = 45 GB/s = 360 Gb/s, 90 % of a NIC
    # of 400 Gb/s. Everything overlaps: 5·0.9 = 4.5 GB/s = 36 Gb/s.
    none, all_ = bandwidth_figures(5e9, 1.0, 0.1, has=50e9)
    assert none.derivation == "B(1-x)/(x·t) = 5 GB·0.9/(0.1·1 s) = 360 Gb/s"
    assert none.because == "90 % of the 400 Gb/s that its NIC has; a bound if the step computes for 1 s"
    assert all_.text == "36 Gb/s"
    assert bisection_figure(20_000_000_000, 2.0, 0.1).text == "72 Gb/s"  # 20 GB·0.9/2 s = 9 GB/s


def test_oversubscription_by_hand() -> None:
    # 32 NICs, the busiest sends 100 B; 1,600 B leave the leaf. At 2 : 1 the uplinks have 16 NICs' rate: 1,600/16 = 100.
    assert tolerated_oversubscription(100, 32, 1600) == 2.0
    # All that the NICs send goes up: no oversubscription is tolerated.
    assert tolerated_oversubscription(100, 32, 3200) == 1.0
    assert tolerated_oversubscription(100, 32, 0) == math.inf
