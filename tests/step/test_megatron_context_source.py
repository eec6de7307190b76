"""Context parallelism as Transformer Engine's own Python does it, on a fake world, where a checkout is at hand."""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from typing import Any
from unittest import mock

import pytest

from tests.step.models import llama, plan_of
from tests.step.transformer_engine import checkout, load, stand_ins
from tokenwire.model.architecture import Architecture, FeedForward, LatentAttention, Layer, Norm
from tokenwire.step import operations

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

PATH = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"
LATENT = Architecture("mla", "mla", 1000, 64, (Layer(LatentAttention(4, None, 32, 16, 8, 16), FeedForward(128, True)),) * 2, Norm("rms"))


def _forward(training: Any, q_length: Any, kv_length: Any, q_ends: Any, kv_ends: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    s, b, heads, _ = q.shape
    return torch.zeros(s, b, heads, v.shape[-1], dtype=q.dtype), [torch.zeros(b, heads, s, 1), torch.zeros(2)]


def _backward(q_length: Any, kv_length: Any, q_ends: Any, kv_ends: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    sinks = torch.zeros(1, q.shape[2], 1, 1)
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), sinks, sinks


def _gather(x: Any, group: Any) -> Any:
    out = torch.empty(x.shape[0] * group.size(), *x.shape[1:], dtype=x.dtype)
    torch.distributed.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out, None


def _scatter(x: Any, group: Any) -> Any:
    out = torch.empty(x.shape[0] // group.size(), *x.shape[1:], dtype=x.dtype)
    torch.distributed.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out, None


@pytest.fixture(scope="module")
def module() -> Any:
    checkout()
    # Before the stand-ins: it asks for Transformer Engine too.
    pytest.importorskip("megatron.core")
    importlib.import_module("tokenwire.measure.dryrun.megatron_cpu")
    nothing = type("Nothing", (), {})
    top = "transformer_engine.pytorch"
    attention = f"{top}.attention.dot_product_attention"
    contents: dict[str, dict[str, Any]] = {
        "transformer_engine_torch": {}, "transformer_engine": {}, top: {},
        f"{top}.utils": {"get_cudnn_version": lambda: (9, 18, 0), "get_device_compute_capability": lambda: (9, 0)},
        f"{top}.cpp_extensions": {}, f"{top}.cpp_extensions.fused_attn": {"fused_attn_fwd": _forward, "fused_attn_bwd": _backward},
        f"{top}.quantization": {}, f"{top}.tensor": {}, f"{top}.tensor.float8_tensor": {}, f"{top}.tensor.storage": {},
        f"{top}.tensor.storage.float8_tensor_storage": {"Float8TensorStorage": nothing},
        f"{top}.quantized_tensor": {
            "QuantizedTensorStorage": nothing, "prepare_for_saving": lambda *tensors: (tensors, [None] * len(tensors)),
            "restore_from_func_ctx": lambda ctx: list(ctx.saved_tensors),
        },
        f"{top}.jit": {"jit_fuser": lambda function: function}, f"{top}.graph": {"is_graph_capturing": lambda: False},
        f"{top}.constants": {"dist_group_type": torch.distributed.ProcessGroup},
        f"{top}.distributed": {
            "get_distributed_world_size": torch.distributed.get_world_size, "get_distributed_rank": torch.distributed.get_rank,
            "gather_along_first_dim": _gather, "reduce_scatter_along_first_dim": _scatter,
        },
        f"{top}.attention": {}, attention: {},
        f"{attention}.utils": {
            "get_attention_quantizers": lambda *_: (None,) * 6, "get_full_cu_seqlens": lambda *_: torch.zeros(2, dtype=torch.int32),
        },
    }  # fmt: skip
    with stand_ins(contents):
        found = load(PATH)
    return found


def _heads(mixer: Any) -> tuple[int, int, int, int]:
    if isinstance(mixer, LatentAttention):
        return mixer.heads, mixer.heads, mixer.qk_nope_head_dim + mixer.qk_rope_head_dim, mixer.v_head_dim
    return mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.head_dim


@pytest.mark.parametrize("arch", [llama(2), LATENT, llama(2, sinks=True)], ids=["grouped", "latent", "sinks"])
@pytest.mark.parametrize(
    ("kind", "c", "within", "rank"),
    [("p2p", 2, None, 0), ("p2p", 4, None, 1), ("p2p", 8, None, 7), ("all_gather", 4, None, 2), ("a2a", 2, None, 0), ("a2a", 4, None, 3),
     ("a2a+p2p", 4, (2, 2), 0), ("a2a+p2p", 8, (2, 4), 0), ("a2a+p2p", 8, (4, 2), 0)],
)  # fmt: skip
def test_every_call_of_attention_agrees(module: Any, arch: Architecture, kind: str, c: int, within: Any, rank: int) -> None:
    from tokenwire.measure.dryrun.megatron_calls import Phase, recorder
    from tokenwire.measure.dryrun.megatron_cpu import fake_world

    mixer = arch.layers[0].mixer
    sinks = getattr(mixer, "sinks", False)
    if sinks and kind != "a2a":
        pytest.skip("sinks go with a2a only")
    plan = plan_of(arch, c, {"cp": c, "cp_comm_type": kind, "hierarchical_context_parallel_sizes": within})
    heads, kv_heads, d, d_v = _heads(mixer)
    sizes = ((heads, d), (kv_heads, d), (kv_heads, d_v))
    q, k, v = (torch.zeros(64 // c, 1, h, w, dtype=torch.bfloat16, requires_grad=True) for h, w in sizes)
    learned = {"softmax_type": "learnable", "softmax_offset": torch.zeros(1, heads, 1, 1, requires_grad=True)} if sinks else {}
    ends, stream, phase = torch.tensor([0, 64], dtype=torch.int32), mock.MagicMock(), Phase()
    calls: list[Any] = []
    cuda = {"current_stream": lambda *_: stream, "Event": lambda *_: stream, "stream": lambda *_: contextlib.nullcontext()}
    with fake_world(rank, c), mock.patch.multiple(torch.cuda, **cuda), recorder(phase, calls, plan, rank):
        names = ("cp_a2a", "cp_p2p") if within else ("cp",)
        groups = [torch.distributed.new_group(plan.members(name, rank).tolist()) for name in names]
        with phase.during("forward"):
            out = module.attn_forward_func_with_cp(
                True, q, k, v, ends, ends, 64, 64, None, None, 0.0, groups if within else groups[0], list(range(c)), stream, kind,
                qkv_format="sbhd", attn_mask_type="causal", use_fused_attention=True, window_size=(-1, 0), **learned,
            )  # fmt: skip
        with phase.during("backward"):
            out.float().sum().backward()
    seen = Counter((x.op, x.members, x.phase, x.elements, x.dtype) for x in calls if x.op != "barrier")
    times, said = len(arch.layers) * plan.micro_batches, Counter({})  # type: ignore[var-annotated]
    for row in operations(arch, plan).filter(parallelism="cp").iter_rows(named=True):
        members = tuple(plan.members(row["group"], rank).tolist())
        said[row["op"], members, row["phase"], row["elements"], row["dtype"]] += row["count"] // times
    assert said == seen
