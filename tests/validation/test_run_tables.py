"""Tables of measured runs: what their rows say as journeys, what cannot be said, and what is no such table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenwire.errors import InputError
from validation.tables import (
    bridge_runs,
    foundry_runs,
    korthikanti_runs,
    narayanan_runs,
    titan_runs,
)
from validation.tables.bridge import bridge_run
from validation.tables.foundry import foundry_run
from validation.tables.titan import titan_run

MPT = {"model": "mpt-7b", "seq": "2048", "gpus": "8", "gpu": "a100_80gb", "micro_batch": "6", "grad_accum": "2", "global_batch": "96",
       "tokens_per_s_per_gpu": "4641", "precision": "amp_bf16", "mp_mode": "DEFAULT", "sharding": "FULL_SHARD",
       "activation_checkpointing": "False"}  # fmt: skip
TITAN = {"model": "llama3.1-405b", "gpus": "512", "fsdp": "8", "tp": "8", "pp": "8", "cp": "1", "local_batch": "32", "seq": "8192",
         "activation_checkpointing": "full", "compile": "1", "float8": "1", "async_tp": "1", "schedule": "1F1B", "tps_per_gpu": "100"}  # fmt: skip
BRIDGE = {"release": "26.04 NeMo Container", "model": "LLAMA3_70B", "system": "DGX-H100", "gpus": "64", "precision": "FP8", "global_batch": "256",
          "micro_batch": "1", "seq": "8192", "fsdp": "0", "tp": "4", "pp": "8", "cp": "1", "vp": "5", "ep": "n/a",
          "tokens_per_s_per_gpu": "1633", "model_tflops_per_gpu": "734"}  # fmt: skip


def test_seconds_of_a_step_by_hand() -> None:
    # 96 sequences of 2,048 tokens at 8·4,641 tokens/s
    assert foundry_run(MPT).measured["step_seconds"] == pytest.approx(96 * 2048 / (8 * 4641))
    # 100 tokens/s a GPU over the 64 GPUs of a replica: 32 sequences of 8,192 take 262,144 / 6,400 s
    assert titan_run(TITAN).measured["step_seconds"] == pytest.approx(40.96)
    assert bridge_run(BRIDGE).measured["step_seconds"] == pytest.approx(256 * 8192 / (1633 * 64))


def test_a_pipeline_of_torchtitan_has_as_many_micro_batches_as_ranks() -> None:
    training = titan_run(TITAN).sections["training"]
    assert (training["micro_batch"], training["global_batch"]) == (4, 256)


def test_what_a_plan_says() -> None:
    plan = foundry_run({**MPT, "mp_mode": "PURE", "sharding": "SHARD_GRAD_OP", "activation_checkpointing": "True"}).sections["plan"]
    assert plan["mixed_precision_reduce"] == "bfloat16"
    assert plan["fsdp_reshard_after_forward"] == "never"
    assert plan["activation_checkpoint_mode"] == "full"
    assert bridge_run(BRIDGE).sections["plan"]["vpp"] == 5


SUPER = {**BRIDGE, "model": "Nemotron_3_Super", "system": "DGX-GB200", "precision": "NVFP4", "tp": "2", "pp": "1", "vp": "n/a", "ep": "64"}


def test_a_run_of_two_thirds_of_the_flops_trains_adapters() -> None:
    # 300e12 / 1,633 FLOPs a token are 0.41 of what training all of Llama 3 70B takes at 8,192 tokens (0.45e12); 734e12 / 1,633 are all of it.
    adapted = bridge_run({**BRIDGE, "model_tflops_per_gpu": "300"}).sections["plan"]
    assert (adapted["lora_dim"], adapted["lora_target_modules"], adapted["tp_comm_overlap"]) == (16, ("linear_qkv",), False)
    assert "lora_dim" not in bridge_run(BRIDGE).sections["plan"]
    assert bridge_run({**BRIDGE, "model_tflops_per_gpu": "300", "precision": "BF16"}).sections["plan"]["recompute_num_layers"] == 1


def test_fully_sharded_rows_say_so() -> None:
    plan = bridge_run({**BRIDGE, "fsdp": "64", "tp": "1", "pp": "1", "vp": "1"}).sections["plan"]
    assert plan["use_megatron_fsdp"]
    assert plan["data_parallel_sharding_strategy"] == "optim_grads_params"
    ultra = bridge_run({**BRIDGE, "model": "Nemotron_3_Ultra", "system": "DGX-GB300", "gpus": "256", "tp": "1", "pp": "1", "vp": "n/a", "ep": "64"})
    assert ultra.sections["plan"]["num_distributed_optimizer_instances"] == 4


def test_nemotron_has_the_options_of_its_recipe() -> None:
    found = bridge_run(SUPER).sections
    assert found["model"] == {"preset": "nemotron-3-super"}
    plan = found["plan"]
    assert (plan["mtp_num_layers"], plan["mtp_use_repeated_layer"], plan["num_layers_at_end_in_bf16"]) == (2, True, 14)
    assert (plan["moe_flex_dispatcher_backend"], plan["tp_comm_overlap"], "recompute_modules" in plan) == ("hybridep", False, False)
    again = bridge_run({**SUPER, "system": "DGX-B200", "precision": "MXFP8"}).sections["plan"]
    assert again["recompute_modules"] == ("moe_act", "layernorm")
    newest = bridge_run({**SUPER, "release": "26.08 NeMo Container", "precision": "MXFP8"}).sections["plan"]
    assert newest["fp8_dot_product_attention"]


@pytest.mark.parametrize(("change", "why"), [
    ({"model": "Nemotron_4"}, "not known"), ({"model": "DeepSeekV4 Flash"}, "compressed tokens"),
    ({"system": "DGX-Z9"}, "not known"), ({"gpus": "many"}, "whole number"),
])  # fmt: skip
def test_rows_that_cannot_be_said_are_named(change: dict[str, str], why: str) -> None:
    found = bridge_run({**BRIDGE, **change})
    assert not found.represented
    assert why in found.reasons[0]


def test_a_batch_of_uneven_micro_batches_cannot_be_said() -> None:
    # 48 in micro-batches of 11: 11, 11, 11, 11, 4
    assert "smaller" in foundry_run({**MPT, "micro_batch": "11", "grad_accum": "5", "global_batch": "384"}).reasons[0]


@pytest.mark.parametrize("reader", [bridge_runs, foundry_runs, korthikanti_runs, narayanan_runs, titan_runs])
@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe"])
def test_other_files_are_refused_in_one_line(reader: object, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_bytes(content)
    with pytest.raises(InputError):
        reader(file)  # type: ignore[operator]
