"""Megatron-Core without a GPU and without other ranks: a fake world, and answers of the CPU where CUDA is asked. Needs torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from tokenwire.errors import InputError


@contextlib.contextmanager
def fake_world(rank: int, world: int) -> Iterator[None]:
    """Open a process group of ``world`` ranks that moves nothing, seen by ``rank``; close it, and Megatron's groups, after."""
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise InputError("dry run", rule="a process group is already initialised in this process")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


@contextlib.contextmanager
def restored_reduction() -> Iterator[None]:
    """Put back Megatron's reduce-scatter after a step that may have exchanged it."""
    # Megatron swaps this function for the whole module when reduce_scatter_with_fp32_accumulation is asked for.
    from megatron.core.distributed import param_and_grad_buffer as buffer

    with mock.patch.object(buffer, "dist_reduce_scatter_func", buffer.dist_reduce_scatter_func):
        yield


class _CpuForCuda(TorchFunctionMode):
    """Answers on the CPU what asks for a CUDA device, and names CPU tensor types as CUDA's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")
        device = kwargs.get("device")
        if device is not None and not isinstance(device, torch.device) and str(device).startswith("cuda"):
            kwargs["device"] = "cpu"
        elif isinstance(device, torch.device) and device.type == "cuda":
            kwargs["device"] = torch.device("cpu")
        if func is torch.Tensor.to and len(args) > 1 and str(args[1]).startswith("cuda"):
            args = (args[0], "cpu", *args[2:])
        kwargs.pop("pin_memory", None)
        if func is torch.empty and kwargs.get("dtype") == torch.int64:
            # Nothing is really received: token numbers must be those of tokens all the same.
            func = torch.zeros
        return func(*args, **kwargs)


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Answer on the CPU every question that Megatron asks of CUDA, and deal tokens evenly to experts."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import layers as tensor_layers
    from megatron.core.tensor_parallel import random as megatron_random

    stream = mock.MagicMock()
    nothing = contextlib.nullcontext
    original = dist.all_to_all_single

    def all_to_all_single(  # split sizes may be tensors; the fake backend needs lists
        output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, **rest: Any  # noqa: A002
    ) -> Any:  # fmt: skip
        lists = [x.tolist() if isinstance(x, torch.Tensor) else x for x in (output_split_sizes, input_split_sizes)]
        # What other ranks send is this rank's own draw of routing, seen from outside: sizes are kept, sums may differ.
        if lists[0] is not None:
            lists[0] = _filling(lists[0], output.shape[0])
            lists[1] = _filling(lists[1], input.shape[0])
        return original(output, input, *lists, **rest)

    tracker = mock.MagicMock()
    tracker.fork = lambda *a, **k: nothing()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context
        for name, answer in {
            "current_device": lambda: "cpu", "Stream": lambda *a, **k: stream, "current_stream": lambda *a, **k: stream,
            "default_stream": lambda *a, **k: stream, "stream": lambda *a, **k: nothing(), "synchronize": lambda *a, **k: None,
            "Event": lambda *a, **k: stream, "empty_cache": lambda: None, "is_available": lambda: False,
        }.items():  # fmt: skip
            patch(mock.patch.object(torch.cuda, name, answer))
        patch(mock.patch.object(dist, "all_to_all_single", all_to_all_single))
        patch(mock.patch.object(torch.distributed, "all_to_all_single", all_to_all_single))
        for module in _modules_with("get_cuda_rng_tracker"):
            patch(mock.patch.object(module, "get_cuda_rng_tracker", return_value=tracker))
        for name in ("_get_all_rng_states", "_set_all_rng_states"):
            patch(mock.patch.object(megatron_random, name, return_value=()))
        patch(mock.patch.object(megatron_random, "_fork_rng", nothing))
        if not megatron_random.HAVE_TE:
            # Recomputation of a norm asks Transformer Engine whether it is in fp8.
            patch(mock.patch.multiple(
                megatron_random, create=True, fp8_autocast=lambda *a, **k: nothing(),
                activation_recompute_forward=lambda *a, **k: nothing(), FP8GlobalStateManager=_NoFp8,
            ))  # fmt: skip
        if not getattr(parallel_state, "HAVE_EINOPS", True):
            patch(mock.patch.multiple(parallel_state, HAVE_EINOPS=True, einops=_Einops, create=True))
        # A sum over a group of one is the tensor itself, which Megatron adds a bias to in place: autograd forbids it for what
        # comes out of a function of Python, and the layers of Transformer Engine have none there.
        for name in ("reduce_from_tensor_model_parallel_region", "reduce_scatter_to_sequence_parallel_region"):
            patch(mock.patch.object(tensor_layers, name, _unless_alone(getattr(tensor_layers, name))))
        from megatron.core.transformer.moe import moe_utils
        from megatron.core.transformer.moe.router import TopKRouter
        from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

        patch(mock.patch.object(TopKRouter, "routing", _balanced(TopKRouter.routing)))
        for module in _modules_with("RouterGatingLinearFunction"):
            patch(mock.patch.object(module, "te_general_gemm", None, create=True))
        # What a run logs is kept for the life of a process, sized by its layers: each run has its own.
        patch(mock.patch.object(MTPLossLoggingHelper, "tracker", {}))
        patch(mock.patch.object(moe_utils, "_MOE_LAYER_WISE_LOGGING_TRACKER", {}))
        patch(_CpuForCuda())
        yield


def _balanced(routing: Callable[..., Any]) -> Callable[..., Any]:
    # Received counts follow the routing of the one rank that runs: tokens are dealt to experts in turn, so that what one
    # rank sees is what every rank would see.
    def dealt(self: Any, logits: torch.Tensor, *rest: Any, **named: Any) -> Any:
        probabilities, chosen = routing(self, logits, *rest, **named)
        if self.config.moe_pad_expert_input_to_capacity:
            return probabilities, chosen
        n, E, k = chosen.shape[0], chosen.shape[1], self.topk
        turns = (torch.arange(n * k) % E).reshape(n, k)
        even = torch.zeros(n, E, dtype=torch.bool).scatter(1, turns, True)
        weights = logits.reshape(n, E).softmax(-1).to(probabilities.dtype)
        return weights * even, even

    return dealt


def _unless_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    def unless_alone(x: torch.Tensor, *rest: Any, group: Any = None, **named: Any) -> Any:
        return x if group is not None and group.size() == 1 else function(x, *rest, group=group, **named)

    return unless_alone


class _NoFp8:
    """What Transformer Engine answers where nothing is in fp8."""

    @staticmethod
    def is_fp8_enabled() -> bool:
        """Return False."""
        return False


class _Einops:
    """The one rearrangement of ranks that Megatron asks of einops."""

    @staticmethod
    def rearrange(ranks: Any, pattern: str, **sizes: int) -> Any:
        """Return ranks (l·s·u) as (l·u, s)."""
        if pattern.replace(" ", "") != "(lsu)->(lu)s":
            raise NotImplementedError(pattern)
        u, s = sizes["u"], sizes["s"]
        return ranks.reshape(-1, s, u).transpose(0, 2, 1).reshape(-1, s)


def _filling(sizes: list[int], total: int) -> list[int]:
    out = list(sizes)
    out[-1] += total - sum(out)
    return out


def _modules_with(name: str) -> list[Any]:
    import sys

    # Modules that took the name in at import; loaded first so that none is missed.
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.models.gpt.gpt_model
    import megatron.core.transformer.moe.moe_layer  # noqa: F401

    return [m for key, m in list(sys.modules.items()) if key.startswith("megatron.core") and hasattr(m, name)]
