"""Defaults of options are those of the framework itself, asked where it is installed."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from tokenwire.plan import TrainingConfig
from tokenwire.plan.ddp import DdpPlan
from tokenwire.plan.deepspeed import DeepspeedPlan
from tokenwire.plan.megatron import LONG_NAMES, MegatronPlan
from tokenwire.plan.megatron_defaults import SCRIPT, assumed
from tokenwire.plan.torchtitan import TorchtitanPlan
from tokenwire.timeline.memory import Software

pytestmark = pytest.mark.torch

WRITTEN_OTHERWISE: dict[str, Any] = {
    "cp_comm_type": None,  # None is p2p (TransformerConfig, cp_comm_type)
    "recompute_modules": None,  # None is core_attn (TransformerConfig.__post_init__)
    "fp8": None,
    "vpp": None,  # 1 virtual stage
    "data_parallel_sharding_strategy": "no_shard",
    "attention_dropout": 0.1,  # of Software: None is the plan's
    "hidden_dropout": 0.1,
}
"""Defaults that a section writes in words of its own: what the framework's class has."""


def plain(value: Any) -> Any:
    """Return a default of a config class as a section writes it."""
    names = {"torch.float32": "fp32", "AttnBackend.auto": "auto"}
    return names.get(str(value), value)


def megatron_defaults() -> dict[str, list[Any]]:
    config = pytest.importorskip("megatron.core.transformer.transformer_config")
    ddp = pytest.importorskip("megatron.core.distributed.distributed_data_parallel_config")
    optimizer = pytest.importorskip("megatron.core.optimizer.optimizer_config")
    out: dict[str, list[Any]] = {}
    # Of what several classes have (use_distributed_optimizer, fp8_recipe) the first decides.
    for one in (config.TransformerConfig, ddp.DistributedDataParallelConfig, optimizer.OptimizerConfig):
        for field in dataclasses.fields(one):
            if field.default is not dataclasses.MISSING:
                out.setdefault(LONG_NAMES.get(field.name, field.name), []).append(plain(field.default))
    return out


@pytest.mark.parametrize("section", [MegatronPlan, Software])
def test_megatron_options_have_megatron_cores_defaults(section: type[MegatronPlan | Software]) -> None:
    known, asked, wrong = megatron_defaults(), [], []
    for name, field in section.model_fields.items():
        if name not in known:
            continue
        asked.append(name)
        ours = WRITTEN_OTHERWISE.get(name, field.default)
        # What the training script overrides is in the table, with both defaults.
        expected = SCRIPT[name].library if name in SCRIPT else known[name][0]
        taken = SCRIPT[name].script if name in SCRIPT and SCRIPT[name].taken == "script" else expected
        if known[name][0] != expected or ours != taken:
            wrong.append((name, field.default, known[name]))
    assert not wrong
    assert len(asked) > (50 if section is MegatronPlan else 8)


def test_the_dropout_of_megatron_is_its_default_and_not_given() -> None:
    assert (MegatronPlan().attention_dropout, MegatronPlan().hidden_dropout) == (0.1, 0.1)
    training = TrainingConfig()
    assert [line.partition(" ")[0] for line in assumed(MegatronPlan(), training)] == ["grad_reduce_in_fp32"]
    assert not list(assumed(MegatronPlan(grad_reduce_in_fp32=False), training))
    assert not list(assumed(MegatronPlan(), TrainingConfig(precision="fp16")))


def test_ddp_has_torchs_defaults() -> None:
    parallel = pytest.importorskip("torch.nn.parallel")
    signature = inspect.signature(parallel.DistributedDataParallel.__init__).parameters
    names = ("bucket_cap_mb", "find_unused_parameters", "gradient_as_bucket_view", "static_graph")
    assert {name: signature[name].default for name in names} == {name: getattr(DdpPlan(), name) for name in names}
    # None stands for true (torch 2.13, broadcast_buffers and forward_sync_buffers are one switch in two directions).
    assert signature["broadcast_buffers"].default in (None, True)


def test_fsdp2_has_torchs_defaults() -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    signature = inspect.signature(fsdp.fully_shard).parameters
    # None: blocks are let go after their forward, the root is not, which is what "default" says without a pipeline.
    assert signature["reshard_after_forward"].default is None
    assert TorchtitanPlan().fsdp_reshard_after_forward == "default"


def test_deepspeed_has_its_own_defaults() -> None:
    zero = pytest.importorskip("deepspeed.runtime.zero.config")
    fields = {field.alias or name: field for name, field in zero.DeepSpeedZeroConfig.model_fields.items()}
    plan, asked = DeepspeedPlan(), []
    for name in DeepspeedPlan.model_fields:
        field = fields.get(name)
        if field is not None:
            asked.append(name)
            ours = getattr(plan, name)
            assert int(field.default or 0) == int(0 if ours in (None, "none") else ours), name
    assert int(fields["stage"].default) == plan.zero_stage
    assert len(asked) >= 10
