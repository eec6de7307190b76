"""DistributedDataParallel: buckets by hand, properties, and what torch really sends over gloo."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import gpt, llama, plan_of
from tokenwire.model import parameters
from tokenwire.model.architecture import Architecture, Tensor
from tokenwire.plan.ddp import DdpPlan
from tokenwire.step import operations
from tokenwire.step.dialects.ddp import bucket_elements
from tokenwire.step.dialects.ddp.buckets import assigned


def test_first_bucket_is_smaller_unless_a_size_is_given() -> None:
    assert DdpPlan().bucket_limits() == (2**20, 25 * 2**20)
    assert DdpPlan(bucket_cap_mb=10).bucket_limits() == (10 * 2**20, 10 * 2**20)


def test_buckets_by_hand() -> None:
    # Backward begins at the head: 1000·64·4 B = 256,000 B, short of 0.3 MiB = 314,572 B. Final norm 256 B, then layer 1:
    # down, up and gate are 176·64·4 = 45,056 B each: 256,000 + 256 + 2·45,056 = 346,368 B closes the first bucket.
    arch = llama(2)
    assert bucket_elements(arch, DdpPlan(bucket_cap_mb=0.3))[0] == 346_368 // 4


def test_accumulation_reduces_once() -> None:
    arch = llama(2)
    every, last = (operations(arch, plan_of(arch, 4, {"dialect": "ddp", "no_sync": flag})) for flag in (False, True))
    sums = [t.filter(t["phase"] == "gradients")["count"].sum() for t in (every, last)]
    assert sums == [4, 1]


@given(sizes=st.lists(st.integers(1, 100), max_size=40), first=st.integers(1, 200), later=st.integers(1, 400))
def test_buckets_hold_every_gradient_in_order(sizes: list[int], first: int, later: int) -> None:
    held = [Tensor(f"p{i}", "mixer", (size,)) for i, size in enumerate(sizes)]
    buckets = assigned(held, 4, (first, later))
    assert [x for bucket in buckets for x in bucket] == held
    # Each but the last is full, and was not before its last gradient came.
    for index, bucket in enumerate(buckets):
        limit, size = (first if index == 0 else later), 4 * sum(x.elements for x in bucket)
        assert size - 4 * bucket[-1].elements < limit
        assert size >= limit or index == len(buckets) - 1


@given(cap=st.floats(0.01, 2), tied=st.booleans())
def test_buckets_sum_to_the_model(cap: float, tied: bool) -> None:
    arch = gpt(3, tied=tied)
    assert sum(bucket_elements(arch, DdpPlan(bucket_cap_mb=cap))) == parameters(arch).total


CASES: list[tuple[Architecture, int, dict[str, Any]]] = [
    (llama(2), 2, {}),
    (llama(3, 512, 8, 4, 4000, width=1400), 2, {}),
    (llama(2), 1000, {"bucket_cap_mb": 0.05}),
    (gpt(2, tied=True), 4, {"bucket_cap_mb": 0.06}),
    (gpt(2, tied=False), 4, {"bucket_cap_mb": 0.04, "no_sync": True, "buffers": 100}),
    (gpt(2), 4, {"bucket_cap_mb": 0.06, "buffers": 64}),
    (gpt(2), 4, {"buffers": 64, "broadcast_buffers": False}),
    # Norms of queries and keys: registered after the output product, and run before it.
    (llama(3, qk_norm=True), 2, {"bucket_cap_mb": 0.01}),
    (llama(3, qk_norm=True), 2, {"bucket_cap_mb": 0.01, "find_unused_parameters": True}),
    (gpt(2), 4, {"buffers": 64, "broadcast_buffers": False, "parameter_dtype": "float16"}),
    (llama(2), 2, {"bucket_cap_mb": 0.05, "find_unused_parameters": True}),
    (llama(2), 2, {"bucket_cap_mb": 0.05, "static_graph": True}),
    (llama(2), 2, {"bucket_cap_mb": 0.05, "comm_hook": "fp16_compress_hook"}),
    (llama(2), 2, {"bucket_cap_mb": 0.05, "parameter_dtype": "bfloat16", "gradient_as_bucket_view": True}),
]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}-" + ",".join(case[2]))
def test_every_call_agrees(case: Any) -> None:
    from tokenwire.measure.dryrun import check

    arch, gpus, options = case
    table = check(arch, plan_of(arch, gpus, {"dialect": "ddp", **options}, global_batch=2 * gpus), 0)
    assert table.height
    assert table.filter(~table["equal"]).to_dicts() == []
