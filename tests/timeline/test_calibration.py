"""Settings: whom they are for, what they do to an accelerator, and measured runs that they were not fitted to."""

import pytest

from tokenwire.errors import InputError
from tokenwire.journey import Journey
from tokenwire.timeline import accelerator, step_time
from tokenwire.timeline.calibration import Setting, calibrated, named, settings, usual
from tokenwire.timeline.efficiency import LAYOUTS, matmul_share

H100 = ("model.preset=llama-3.1-8b", "training.sequence_length=4096", "training.global_batch=64", "training.micro_batch=1",
        "cluster.nodes=2", "cluster.gpus_per_node=8", "cluster.nics_per_node=8", "plan.tp=2")  # fmt: skip


def setting_of(*overrides: str) -> str:
    journey = Journey.read(None, [*H100, *overrides])
    facts = journey.config.cluster.facts
    found = usual(accelerator(facts.gpu, facts.peak_flops), journey.model().architecture, journey.plan())
    return found.name if found else "none"


def test_the_usual_setting_is_that_of_gpu_framework_and_precision() -> None:
    assert setting_of("training.precision=fp8") == "h100-megatron-bridge-fp8"
    # Nothing measured in bf16: that of fp8 is nearest.
    assert setting_of() == "h100-megatron-bridge-fp8"
    assert setting_of("plan.dialect=torchtitan") == "h100-500w-torchtitan"
    assert setting_of("cluster.preset=dgx-a100-superpod") == "a100-megatron-2021"
    assert setting_of("cluster.preset=dgx-b200-superpod") == "b200-megatron"
    assert setting_of("cluster.preset=dgx-b200-superpod", "training.precision=fp8") == "b200-megatron-bridge-fp8"
    assert setting_of("model.preset=mixtral-8x7b", "plan.ep=2", "plan.pp=2").startswith("h100-megatron-bridge-experts")


def test_a_setting_slows_products_and_says_so() -> None:
    journey = Journey.read(None, H100)
    arch, plan, rows, facts = journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts
    plain, usual_ = (step_time(arch, plan, rows, facts, setting=name) for name in ("none", None))
    assert plain.step_seconds < usual_.step_seconds
    assert any("as fast as each is alone" in note for note in plain.notes)
    assert any("h100-megatron-bridge-fp8" in note and "those ran in fp8" in note for note in usual_.notes)


@pytest.mark.parametrize("one", settings(), ids=lambda one: one.name)
def test_no_setting_makes_a_gpu_faster_than_its_data_sheet(one: Setting) -> None:
    for name in one.gpus:
        plain = accelerator(name)
        gpu = calibrated(plain, one, one.precision)
        shares = [matmul_share(plain, phase, 16_384, 8192, 8192)[0] for phase in LAYOUTS]
        assert max(shares) * gpu.sustained < 1
        for kind in plain.memory_shares:
            assert gpu.memory_seconds(2**30, kind, kernels=0) > 2**30 / plain.memory_rate
    assert one.rows > 1


def test_a_setting_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"known are .*none"):
        named("h1000")
    assert named("none") is None
    assert calibrated(accelerator("H100 SXM"), None, "bf16").sustained == 1.0
