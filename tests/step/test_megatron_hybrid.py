"""Experts on a narrower width, and modules of further tokens with layers of their own, as Nemotron 3 has them: by hand."""

from __future__ import annotations

import pytest

from tests.step.models import llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, Layer, Norm
from tokenwire.model.pattern import state_space
from tokenwire.plan.shards import holdings
from tokenwire.step import operations

NARROW = Experts(8, 2, 96, gated=False, shared=FeedForward(48, False), latent_size=16)
ATTENTION, SPARSE = Layer(Attention(8, 4, 8), None, 1), Layer(None, NARROW, 1)
MAMBA = Layer(state_space(64, None, 16, 16, 4), None, 1)
HYBRID = Architecture(
    "hybrid",
    "nemotron_h",
    1000,
    64,
    (MAMBA, SPARSE, ATTENTION, SPARSE),
    Norm("rms"),
    "none",
    mtp_layers=1,
    mtp_block=(ATTENTION, SPARSE),
)
EP = {
    "ep": 2,
    "moe_token_dispatcher_type": "alltoall",
    "moe_grouped_gemm": True,
    "moe_router_enable_expert_bias": True,
}
TWICE = {**EP, "mtp_num_layers": 2, "mtp_use_repeated_layer": True}


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather", "flex"])
def test_what_goes_to_experts_is_as_wide_as_they_are(dispatcher: str) -> None:
    wide = llama(experts=Experts(8, 2, 96))
    narrow = llama(experts=Experts(8, 2, 96, latent_size=16))
    sent = []
    for arch in (wide, narrow):
        rows = operations(arch, plan_of(arch, 8, {**EP, "moe_token_dispatcher_type": dispatcher})).to_dicts()
        sent.append(
            [
                row["elements"]
                for row in rows
                if row["what"] == "tokens: dispatch" and row["phase"] == "forward"
            ]
        )
    # 64 numbers a token, or 16
    assert sent[0][0] == 4 * sent[1][0] > 0
    if dispatcher == "alltoall":
        assert sent[1] == [64 * 2 * 16]


def test_a_module_is_run_for_every_further_token_and_has_its_gradients_once() -> None:
    apart = operations(HYBRID, plan_of(HYBRID, 8, {**TWICE, "mtp_use_repeated_layer": False})).to_dicts()
    again = operations(HYBRID, plan_of(HYBRID, 8, TWICE)).to_dicts()

    def of(rows: list[dict[str, object]], what: str) -> list[tuple[object, object]]:
        return [(row["count"], row["elements"]) for row in rows if row["what"] == what]

    # Two layers of experts in the model and one in each module, 4 micro-batches.
    assert of(apart, "tokens: dispatch") == of(again, "tokens: dispatch") == [(4 * 4, 64 * 2 * 16)]
    # A module: qkv 64·(64 + 2·32), output 64·64, router 8·64, latent 2·16·64, shared 2·48·64, projection 2·64·64, two layers' and three more norms.
    module = 64 * 128 + 64 * 64 + 8 * 64 + 2 * 16 * 64 + 2 * 48 * 64 + 2 * 64 * 64 + 5 * 64
    ((_, twice),), ((_, once),) = of(apart, "gradients"), of(again, "gradients")
    assert twice - once == module  # type: ignore[operator]
    # 4 of the 8 experts on a rank, two products of 96·16
    ((_, twice),), ((_, once),) = of(apart, "expert gradients"), of(again, "expert gradients")
    assert twice - once == 4 * 2 * 96 * 16  # type: ignore[operator]
    # A bias of 8 a router: in four layers, or in three
    assert (
        of(apart, "tokens for each expert, for the expert bias"),
        of(again, "tokens for each expert, for the expert bias"),
    ) == ([(1, 32)], [(1, 24)])


def test_tensor_parallel_blocks_of_a_module() -> None:
    options = {**TWICE, "tp": 2, "sequence_parallel": True, "etp": 1}
    rows = operations(HYBRID, plan_of(HYBRID, 8, options)).to_dicts()
    calls = {
        row["what"]: row["count"]
        for row in rows
        if row["op"] == "reduce_scatter" and row["phase"] == "forward"
    }
    # attention in the model and in two passes of the module; shared experts twice and twice; one state-space block; 4 micro-batches
    assert (calls["attention output"], calls["shared experts output"], calls["state space output"]) == (
        12,
        16,
        4,
    )


def test_a_rank_holds_a_module_that_is_run_again_once() -> None:
    plan = plan_of(HYBRID, 8, TWICE)
    held = holdings(HYBRID, plan, 0)
    assert held.filter(held["layer"] >= 4)["layer"].unique().to_list() == [4]
    assert held["tensor"].is_unique().all()


def test_a_module_that_is_not_there_cannot_be_run_again() -> None:
    with pytest.raises(InputError, match="mtp_use_repeated_layer"):
        plan_of(HYBRID, 8, {**EP, "mtp_use_repeated_layer": True})
