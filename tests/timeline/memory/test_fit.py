"""What fits: the smallest change is real, and cheap ones come first."""

from __future__ import annotations

import pytest

from tokenwire.errors import InputError
from tokenwire.model import preset
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Software, fit, memory

ARCH = preset("llama-3.1-8b")


def plan(gpus: int = 8, micro: int = 1, sequence: int = 4096, **options: object) -> Plan:
    return resolve(read_plan(options), TrainingConfig(sequence_length=sequence, micro_batch=micro, global_batch=64), ARCH, gpus)


def test_a_plan_that_fits_needs_no_change() -> None:
    one = plan(tp=8, use_distributed_optimizer=True)
    result = fit(ARCH, one, memory(ARCH, one))
    assert result.fits
    assert result.over < 0
    assert result.change is None
    assert result.tried == ()


@pytest.mark.parametrize("options", [{"tp": 1}, {"tp": 4, "micro": 8, "use_distributed_optimizer": True}, {"tp": 4, "sequence": 32768}])
def test_the_change_makes_it_fit_when_it_is_made(options: dict[str, int]) -> None:
    one = plan(**options)
    found = memory(ARCH, one)
    result = fit(ARCH, one, found)
    assert not result.fits
    assert result.change is not None
    assert result.over == found.reserved - result.room
    micro = result.change.settings.get("training.micro_batch", options.get("micro", 1))
    settings = {key: value for key, value in result.change.settings.items() if not key.startswith("training.")}
    sizes = {key: value for key, value in options.items() if key not in ("micro", "sequence")}
    changed = plan(micro=micro, sequence=options.get("sequence", 4096), **{**sizes, **settings})
    assert memory(ARCH, changed).worst.peak == result.change.peak <= result.room


def test_a_smaller_gpu_is_a_smaller_room() -> None:
    one = plan(tp=8, use_distributed_optimizer=True)
    rooms = [fit(ARCH, one, memory(ARCH, one, Software(gpu=gpu))).room for gpu in ("A100 custom", "A100 SXM", "H200", "B200")]
    assert rooms == sorted(rooms)
    assert rooms[0] == int(64 * 2**30 * 0.95)


def test_what_cannot_fit_says_how_near_it_came() -> None:
    arch = preset("llama-3.1-405b")
    one = resolve(read_plan({"tp": 8}), TrainingConfig(sequence_length=4096, global_batch=8, micro_batch=1), arch, 8)
    result = fit(arch, one, memory(arch, one))
    assert result.change is None
    assert result.least is not None
    assert result.least.peak is not None
    assert result.least.peak <= min(one.peak for one in result.tried if one.peak is not None)


@pytest.mark.parametrize("reserve", [-0.1, 1.0, 2.0])
def test_a_reserve_that_is_no_share_is_refused(reserve: float) -> None:
    one = plan(tp=8)
    with pytest.raises(InputError, match="reserve"):
        fit(ARCH, one, memory(ARCH, one), reserve=reserve)


@pytest.mark.parametrize("dialect", ["torchtitan", "deepspeed", "ddp"])
def test_every_framework_has_changes(dialect: str) -> None:
    one = plan(micro=4, sequence=8192, dialect=dialect)
    result = fit(ARCH, one, memory(ARCH, one, Software(gpu="A100")))
    assert not result.fits
    assert any(one.peak is not None and one.peak < memory(ARCH, plan(micro=4, sequence=8192, dialect=dialect)).worst.peak for one in result.tried)


ODD = {
    "latent attention, one rank": ("deepseek-v2-lite", 8, 4, 4096, {"ep": 8}),
    "uneven pipeline of experts": ("deepseek-v3", 256, 1, 4096, {"ep": 8, "pp": 4, "decoder_first_pipeline_num_layers": 16,
                                                                 "decoder_last_pipeline_num_layers": 15}),
    "state space": ("mamba2-2.7b", 8, 16, 8192, {}),
    "hybrid of experts, which needs three changes": ("jamba-v0.1", 16, 1, 8192, {"ep": 8}),
    "long sequences": ("llama-3.1-8b", 16, 1, 131_072, {"cp": 2}),
    "ZeRO": ("llama-3.1-70b", 64, 1, 4096, {"dialect": "deepspeed", "zero_stage": 1}),
    "FSDP2": ("llama-3.1-405b", 256, 1, 8192, {"dialect": "torchtitan", "tp": 8}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_what_is_said_of_odd_plans_holds_when_it_is_done(name: str) -> None:
    model, gpus, micro, sequence, options = ODD[name]
    arch = preset(model)

    def of(micro_batch: int, settings: dict[str, object]) -> Plan:
        training = TrainingConfig(sequence_length=sequence, micro_batch=micro_batch, global_batch=1024)
        # What a journey says that is turned off where tp is 1.
        base = {"sequence_parallel": True} if "dialect" not in options else {}
        return resolve(read_plan({**base, **options, **settings}), training, arch, gpus)

    one = of(micro, {})
    result = fit(arch, one, memory(arch, one, Software(gpu="H100")))
    assert result.change is not None
    settings = dict(result.change.settings)
    again = of(settings.pop("training.micro_batch", micro), settings)
    assert memory(arch, again, Software(gpu="H100")).worst.peak == result.change.peak <= result.room


def test_tensor_parallelism_brings_sequence_parallelism_with_it() -> None:
    one = plan(sequence=32_768)
    settings = [change.settings for change in fit(ARCH, one, memory(ARCH, one)).tried if "tp" in change.settings]
    assert settings
    assert all(each["sequence_parallel"] for each in settings)


def test_who_replicates_is_told_that_more_gpus_do_not_help() -> None:
    one = plan(dialect="ddp")
    assert "a framework that shards" in fit(ARCH, one, memory(ARCH, one)).beyond
