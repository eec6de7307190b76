"""Recipes of Megatron-Bridge by release, and the options that they are in a plan."""

import pytest

from validation.run import DATA
from validation.tables import bridge_runs
from validation.tables.bridge import bridge_run
from validation.tables.bridge_recipes import options, recipe, recipes

ROW = {
    "release": "26.06.01 NeMo Container", "model": "GPT OSS 120B", "system": "DGX-GB200", "gpus": "64", "precision": "MXFP8", "global_batch": "1280",
    "micro_batch": "4", "seq": "4096", "fsdp": "", "tp": "1", "pp": "1", "cp": "1", "vp": "n/a", "ep": "64", "tokens_per_s_per_gpu": "18304",
    "model_tflops_per_gpu": "597[^gpt-oss-note]",
}  # fmt: skip


@pytest.mark.parametrize(("release", "dispatcher"), [("26.02", "alltoall"), ("26.02.01", "alltoall"), ("26.04", "alltoall"), ("26.04.01", "hybridep")])
def test_a_recipe_holds_from_its_release_on(release: str, dispatcher: str) -> None:
    assert recipe("Qwen3_235B_a22B", "DGX-B300", "mxfp8", release).dispatcher == dispatcher


def test_a_whole_step_is_a_graph_in_mxfp8_alone() -> None:
    assert recipe("Qwen3_235B_a22B", "DGX-GB300", "mxfp8", "26.06").graph == "step"
    assert recipe("Qwen3_235B_a22B", "DGX-GB300", "nvfp4", "26.06").graph == "parts"
    assert recipe("Qwen3_235B_a22B", "DGX-GB300", "mxfp8", "26.04").graph == "parts"


def test_what_a_recipe_is_in_a_plan() -> None:
    found = options(recipe("GPT OSS 120B", "DGX-GB200", "mxfp8", "26.06"), False, 64, True)
    assert found["moe_flex_dispatcher_backend"] == "hybridep"
    assert found["overlap_moe_expert_parallel_comm"]
    assert found["moe_paged_stash"]
    assert found["fp8_output_proj"]
    # without virtual stages nothing runs beside
    assert "overlap_moe_expert_parallel_comm" not in options(recipe("DeepSeekV3", "DGX-B200", "mxfp8", "26.04.01"), False, 8, False)
    dropped = options(recipe("Qwen3_30B_a3B", "DGX-GB200", "fp8", "25.09"), True, 8, True)
    assert dropped["moe_token_dispatcher_type"] == "alltoall"
    assert dropped["moe_expert_capacity_factor"] == 1.0


def test_a_run_that_a_fault_slowed_is_marked() -> None:
    assert bridge_run(ROW).software["slowed"] is True
    assert bridge_run({**ROW, "model_tflops_per_gpu": "943"}).software["slowed"] is False


def test_recipes_hold_from_ascending_releases_that_the_runs_name() -> None:
    released = {run.software["release"] for run in bridge_runs(DATA / "megatron_bridge_runs.csv") if run.represented}
    for (model, gpu, bits), lines in recipes().items():
        since = [release for release, _ in lines]
        assert since == sorted(set(since)), (model, gpu, bits)
        assert set(since) <= released, (model, gpu, bits)
