"""Weights, gradients and optimizer states of random small plans, against what the frameworks themselves hold on the rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.model import ModelConfig, architecture
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Software
from tokenwire.timeline.memory.adam import state_bytes
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.states import held, states

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@dataclass(frozen=True)
class Counted:
    """Bytes and elements that a rank really holds; ``padding`` are the elements of gradient buffers that are no parameter's."""

    elements: int
    weights: int
    gradients: int
    optimizer: int
    padding: int


@st.composite
def models(draw: st.DrawFn) -> Architecture:
    gated = draw(st.booleans())
    fields: dict[str, Any] = {
        "hidden_size": draw(st.sampled_from([64, 128, 192])), "layers": draw(st.sampled_from([2, 4])), "heads": 4,
        "kv_heads": draw(st.sampled_from([4, 2])), "feed_forward": draw(st.sampled_from([128, 256])), "gated": gated,
        "activation": "silu" if gated else "gelu", "vocabulary_size": draw(st.sampled_from([512, 1000])), "max_positions": 64,
        "norm": draw(st.sampled_from(["rms", "layer"])), "bias": draw(st.booleans()) and not gated, "tied_embeddings": draw(st.booleans()),
        "positions": draw(st.sampled_from(["rotary", "learned"])),
    }  # fmt: skip
    if draw(st.booleans()):
        # Without biases: megatron-core's SequentialMLP adds those of its output in place to a view at etp = 1, which autograd refuses.
        fields |= {"bias": False, "experts": 4, "active_experts": 2, "expert_feed_forward": 64}
    return architecture(ModelConfig.model_validate(fields))


@st.composite
def megatron_plans(draw: st.DrawFn) -> tuple[Architecture, Plan, int]:
    arch = draw(models())
    tp, pp, dp = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3]))
    options = {
        "tp": tp, "pp": pp, "sequence_parallel": tp > 1, "use_distributed_optimizer": draw(st.booleans()),
        "grad_reduce_in_fp32": draw(st.booleans()), "moe_token_dispatcher_type": "alltoall", "ep": draw(st.sampled_from([1, 2])),
    }  # fmt: skip
    training = TrainingConfig(sequence_length=32, micro_batch=1, global_batch=2 * dp, precision="bf16")
    try:
        plan = resolve(read_plan(options), training, arch, tp * pp * dp)
    except InputError:
        assume(False)
        raise
    return arch, plan, draw(st.integers(0, plan.world - 1))


def megatron_holds(arch: Architecture, plan: Plan, rank: int) -> Counted:
    """Run one step of Megatron-Core as the rank, and count what it then holds."""
    pytest.importorskip("megatron.core")
    import megatron.core.optimizer as package

    from tokenwire.measure.dryrun.megatron import calls

    made: list[Any] = []
    original = package.get_megatron_optimizer

    def noting(config: Any, models: Any, *args: Any, **kwargs: Any) -> Any:
        made.extend((models, original(config, models, *args, **kwargs)))
        return made[-1]

    with mock.patch.object(package, "get_megatron_optimizer", noting):
        calls(arch, plan, rank)
    models, optimizer = made
    parameters = [p for model in models for p in model.parameters()]
    buffers = [b for model in models for b in (*model.buffers, *model.expert_parallel_buffers)]
    elements = sum(p.numel() for p in parameters)
    gradients = sum(b.grad_data.numel() * b.grad_data.element_size() for b in buffers)
    padding = sum(b.grad_data.numel() for b in buffers) - elements
    states = 0
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        inner = one.optimizer
        for p in (p for group in inner.param_groups for p in group["params"]):
            master = p.numel() * p.element_size()
            states += master + sum(x.numel() * x.element_size() for x in inner.state[p].values() if getattr(x, "dim", lambda: 0)() > 0)
    return Counted(elements, sum(p.numel() * p.element_size() for p in parameters), gradients, states, padding)


@given(megatron_plans())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_megatron_holds_what_is_predicted(case: tuple[Architecture, Plan, int]) -> None:
    arch, plan, rank = case
    real = megatron_holds(arch, plan, rank)
    frame = Frame(plan.config.trained(arch), plan, Software(transformer_impl="local", expandable_segments=True))
    stage = plan.stages[plan.stage_of(rank)]
    kinds = held(frame, stage)
    assert sum(kind.total for kind in kinds) == real.elements
    assert real.weights == 2 * real.elements
    parts = [part for part in states(frame, stage) if "fp32 copy" not in part.what]
    tensors = sum(len(kind.elements) for kind in kinds)
    size = {kind: sum(part.size for part in parts if part.kind == kind) for kind in ("weights", "gradients", "optimizer")}
    # A block of the allocator is at most 511 bytes larger than its request.
    assert 0 <= size["weights"] - real.weights < 512 * tensors
    item = 4 if plan.config.sharding(plan, expert=False).gradient_bytes == 4 else 2
    assert real.gradients == (real.elements + real.padding) * item
    assert -real.padding * item <= size["gradients"] - real.gradients < 512 * len(kinds)
    each = state_bytes(plan.training, frame.software)
    if plan.config.sharding(plan, expert=False).optimizer == 1 and plan.config.sharding(plan, expert=True).optimizer == 1:
        assert real.optimizer == each * real.elements
        assert 0 <= size["optimizer"] - real.optimizer < 3 * 512 * tensors
    else:
        # The last rank of those that share a buffer has its padding, the others none.
        assert abs(size["optimizer"] - real.optimizer) <= each * (real.padding + len(kinds)) + 512 * len(kinds)


@st.composite
def torchtitan_plans(draw: st.DrawFn) -> tuple[Architecture, Plan]:
    fields = {
        "hidden_size": draw(st.sampled_from([64, 128])), "layers": draw(st.sampled_from([2, 3])), "heads": 4, "kv_heads": draw(st.sampled_from([4, 2])),
        "feed_forward": draw(st.sampled_from([128, 256])), "gated": True, "activation": "silu", "vocabulary_size": 512, "max_positions": 64,
        "norm": "rms", "bias": False, "tied_embeddings": False, "positions": "rotary",
    }  # fmt: skip
    arch = architecture(ModelConfig.model_validate(fields))
    tp, shards, replicas = draw(st.sampled_from([1, 2])), draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([1, 2]))
    training = TrainingConfig(sequence_length=32, micro_batch=1, global_batch=shards * replicas, precision="bf16")
    options = {"dialect": "torchtitan", "tp": tp, "data_parallel_replicate_degree": replicas, "data_parallel_shard_degree": shards}
    return arch, resolve(read_plan(options), training, arch, tp * shards * replicas)


@given(torchtitan_plans())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_fsdp2_holds_what_is_predicted(case: tuple[Architecture, Plan]) -> None:
    torch = pytest.importorskip("torch")
    from tokenwire.measure.dryrun.torchtitan import calls

    arch, plan = case
    made: list[Any] = []

    class Noted(torch.optim.AdamW):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    with mock.patch.object(torch.optim, "AdamW", Noted):
        calls(arch, plan, 0)
    (optimizer,) = made
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    local = [p.to_local() for p in parameters]
    # Every first dimension here is a multiple of the shards, so no rank holds more than another.
    weights = sum(p.numel() * p.element_size() for p in local)
    moments = [x.to_local() for p in parameters for name, x in optimizer.state[p].items() if name != "step"]
    frame = Frame(arch, plan, Software(expandable_segments=True))
    size = {part.kind: part.size for part in states(frame, plan.stages[0])}
    assert size["weights"] == size["gradients"] == weights
    assert size["optimizer"] == sum(x.numel() * x.element_size() for x in moments) == 2 * weights
