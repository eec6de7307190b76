"""Delayed scaling as Transformer Engine's own Python keeps and reduces its list, where a checkout is at hand."""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from typing import Any
from unittest import mock

import pytest

from tests.step.models import latent, llama, plan_of
from tests.step.transformer_engine import checkout, load, stand_ins
from tokenwire.model.architecture import Architecture, Experts, FeedForward
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.step import operations
from tokenwire.step.dialects.megatron.amax import Module, modules
from tokenwire.step.dialects.megatron.sizes import Sizes

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]
TOP = "transformer_engine.pytorch"


class Engine:
    """The two modules that decide when lists are reduced."""

    def __init__(self) -> None:
        nothing = type("Nothing", (), {})
        names = ("", ".utils", ".jit", ".constants", ".torch_version", ".quantized_tensor", ".triton", ".triton.pad", ".tensor",
                 ".tensor.float8_tensor", ".tensor.mxfp8_tensor", ".tensor.nvfp4_tensor", ".tensor.float8_blockwise_tensor",
                 ".tensor.storage", ".tensor.storage.float8_tensor_storage", ".tensor.storage.mxfp8_tensor_storage",
                 ".tensor.storage.nvfp4_tensor_storage", ".tensor.storage.float8_blockwise_tensor_storage")  # fmt: skip
        contents: dict[str, dict[str, Any]] = {"transformer_engine_torch": {}, "transformer_engine": {}}
        contents |= {f"{TOP}{name}": {} for name in names}
        contents |= {f"transformer_engine.{name}": {} for name in ("common", "debug", "debug.pytorch", "debug.pytorch.debug_quantization")}
        contents[f"{TOP}.jit"] = {"jit_fuser": lambda function: function}
        contents[f"{TOP}.constants"] = {"dist_group_type": torch.distributed.ProcessGroup}
        contents[f"{TOP}.torch_version"] = {"torch_version": lambda: (2, 13, 0)}
        contents[f"{TOP}.utils"] = {"get_device_compute_capability": lambda: (9, 0)}
        contents[f"{TOP}.tensor.float8_tensor"] = {"Float8Quantizer": lambda *_: nothing()}
        with stand_ins(contents):
            self.recipe = load("transformer_engine/common/recipe/__init__.py")
            self.quantization = load("transformer_engine/pytorch/quantization.py")
            self.distributed = load("transformer_engine/pytorch/distributed.py")
        self.quantization._FP8_SUPPORT = (True, "")

    @property
    def manager(self) -> Any:
        return self.quantization.FP8GlobalStateManager


@pytest.fixture(scope="module")
def engine() -> Engine:
    checkout()
    # Before the stand-ins: it asks for Transformer Engine too.
    pytest.importorskip("megatron.core")
    importlib.import_module("tokenwire.measure.dryrun.megatron_cpu")
    return Engine()


class _Product(torch.autograd.Function):
    # What module/linear.py and grouped_linear.py do of it.
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, engine: Engine, kind: str) -> Any:
        ctx.reduces, ctx.engine = False, engine
        state = engine.manager.quantization_state
        if kind != "attention":
            first = state.is_first_fp8_module
            ctx.reduces = engine.manager.is_first_fp8_module()
            if kind == "linear" and engine.distributed.in_fp8_activation_recompute_phase():
                state.is_first_fp8_module = first
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.reduces:
            ctx.engine.manager.reduce_and_update_fp8_tensors(forward=False)
        return grad, torch.zeros(1), None, None


class _Cast(torch.nn.Module):
    """A module with the list of its products; ``forward`` keeps it as module/base.py does."""

    def __init__(self, engine: Engine, module: Module) -> None:
        super().__init__()
        self.engine, self.module, self.meta = engine, module, {}
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: Any) -> Any:
        manager, quantization = self.engine.manager, self.engine.quantization
        if not self.engine.distributed.in_fp8_activation_recompute_phase():
            if not self.meta:
                recipe = manager.get_fp8_recipe()
                self.meta = {"recipe": recipe, "fp8_group": manager.get_fp8_group()}
                for mode, each in (("forward", 3), ("backward", 2)):
                    state = quantization.DelayedScalingRecipeState(
                        recipe, mode=mode, num_quantizers=each * self.module.products, device=torch.device("cpu")
                    )
                    self.meta[manager.get_meta_tensor_key(forward=mode == "forward")] = state
            manager.add_fp8_tensors_to_global_buffer(self.meta)
        grad = torch.is_grad_enabled()
        with contextlib.nullcontext() if grad else torch.no_grad():
            return _Product.apply(x, self.weight, self.engine, self.module.kind if grad else "attention")


def _run(engine: Engine, arch: Architecture, plan: Plan, rank: int) -> Counter[tuple[str, int]]:
    """Return (phase, elements) of the reductions of one micro-batch through every virtual stage, with lists that are full."""
    sizes, config = Sizes.of(arch, plan), plan.config
    assert isinstance(config, MegatronPlan)
    each = config.recompute_num_layers or 1 if config.recompute_method == "uniform" else 1
    stage = plan.stages[plan.stage_of(rank)]
    layers = {index: [_Cast(engine, m) for m in modules(sizes, arch.layers[index])] for index in stage.layers}
    attention = {index: 1 + next(i for i, c in enumerate(found) if c.module.kind == "attention") for index, found in layers.items()}

    def through(casts: list[_Cast]) -> Any:
        def inside(x: Any) -> Any:
            for cast in casts:
                x = cast(x)
            return x

        return inside

    def again(casts: list[_Cast], x: Any) -> Any:
        return engine.distributed._CheckpointFunction.apply(through(casts), False, None, None, None, {}, x)

    seen: Counter[tuple[str, int]] = Counter()
    phase = ["forward"]

    def reduced(tensor: Any, group: Any) -> None:
        seen[phase[0], tensor.numel()] += 1

    def step() -> None:
        outs = []
        for chunk in stage.chunks:
            phase[0] = "forward"
            x = torch.zeros(4, requires_grad=True)
            with engine.quantization.autocast(enabled=True, recipe=recipe, amax_reduction_group=group):
                for start in range(0, len(chunk), each):
                    casts = [cast for index in chunk[start : start + each] for cast in layers[index]]
                    split = attention[chunk[start]] + 1
                    full = config.recompute_granularity == "full"
                    if full and not (config.recompute_method == "block" and start >= (config.recompute_num_layers or 0)):
                        x = again(casts, x)
                    elif "mla_up_proj" in config.recompute_modules:
                        x = through(casts[4:])(again(casts[2:4], through(casts[:2])(x)))
                    elif config.recompute_granularity == "selective":
                        x = again(casts[split:], through(casts[:split])(x))
                    else:
                        x = through(casts)(x)
            outs.append(x)
        for out in reversed(outs):
            phase[0] = "backward"
            out.sum().backward()

    from tokenwire.measure.dryrun.megatron_cpu import fake_world

    recipe = engine.recipe.DelayedScaling()
    with fake_world(rank, plan.world), contextlib.ExitStack() as stack:
        group = torch.distributed.new_group(plan.members("tp_dp_cp", rank).tolist())
        engine.manager.reset()
        for name, value in (("get_rng_state", torch.zeros(1)), ("set_rng_state", None), ("is_current_stream_capturing", False)):
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        for name, value in (("_get_cuda_rng_state", torch.zeros(1)), ("_set_cuda_rng_state", None)):
            stack.enter_context(mock.patch.object(engine.distributed, name, return_value=value))
        stack.enter_context(mock.patch.object(engine.manager, "reduce_tensor_across_group_op_max", reduced))
        step()
        seen.clear()
        step()
    return seen


FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
MLP = {"recompute_granularity": "selective", "recompute_modules": ["mlp"]}
MOE = {"ep": 2, "moe_token_dispatcher_type": "alltoall", "recompute_granularity": "selective", "recompute_modules": ["moe"]}
SHARED = Experts(8, 2, 96, shared=FeedForward(64, True))


@pytest.mark.parametrize(
    ("arch", "options", "rank"),
    [(llama(2), {}, 0), (llama(8), {"pp": 2, "vpp": 2}, 7), (llama(2), FULL, 0), (llama(4), {**FULL, "recompute_num_layers": 2}, 0),
     (llama(4), {**FULL, "recompute_method": "block", "recompute_num_layers": 3}, 0), (llama(8), {"pp": 2, "vpp": 2, **FULL}, 0),
     (llama(2), MLP, 3), (llama(2, experts=SHARED), {**MOE, "moe_grouped_gemm": True}, 0), (llama(2, experts=SHARED), MOE, 0),
     (llama(2, experts=SHARED), {**MOE, **FULL, "moe_grouped_gemm": True}, 0), (latent(2), {}, 0),
     (latent(2), {"recompute_granularity": "selective", "recompute_modules": ["mla_up_proj"]}, 0)],
)  # fmt: skip
def test_every_reduction_agrees(engine: Engine, arch: Architecture, options: dict[str, Any], rank: int) -> None:
    plan = plan_of(arch, 8, options, precision="fp8")
    said: Counter[tuple[str, int]] = Counter()
    for row in operations(arch, plan).filter(stage=plan.stage_of(rank)).iter_rows(named=True):
        if row["what"].startswith("largest values"):
            said[row["phase"], row["elements"]] += row["count"] // plan.micro_batches
    assert said == _run(engine, arch, plan, rank)
