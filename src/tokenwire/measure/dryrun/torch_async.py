"""Asynchronous tensor parallelism: torch's compiler joins products with the collectives beside them, and what is then asked for.

Blocks are compiled by torch's own front end and partitioner, and its own pass joins what it can (torch 2.13,
torch/_inductor/fx_passes/micro_pipeline_tp.py). The joined operators run on accelerators only, so here the graph is carried out
operator by operator, with torch's own fallbacks in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as symmetric

from tokenwire.measure.dryrun.torch_model import Decoder


def compile_blocks(model: Decoder) -> None:
    """Compile each block in place (torchtitan/models/llama3/infra/parallelize.py, apply_compile)."""
    _fallbacks()
    # Nothing of another world's blocks is taken for this one's.
    torch._dynamo.reset()
    for name in list(model.layers):
        model.layers[name] = torch.compile(model.layers[name], backend=_backend, fullgraph=True, dynamic=False)


def _backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, inner_compile=_joined)


def _joined(graph: torch.fx.GraphModule, inputs: Any, **_: Any) -> Any:
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.fx_passes.micro_pipeline_tp import micro_pipeline_tp_pass
    from torch._inductor.fx_passes.post_grad import view_to_reshape
    from torch._inductor.virtualized import V

    view_to_reshape(graph)
    with _as_on_an_accelerator(), V.set_fake_mode(torch._guards.detect_fake_mode(inputs)):
        micro_pipeline_tp_pass(graph.graph)
    graph.recompile()
    return make_boxed_func(graph.forward)


@contextmanager
def _as_on_an_accelerator() -> Iterator[None]:
    # The pass stands aside without NCCL, and where symmetric memory was not enabled for the group.
    with mock.patch.object(dist, "is_nccl_available", return_value=True), symmetric._test_mode():
        yield


@cache
def _fallbacks() -> torch.library.Library:
    library = torch.library.Library("symm_mem", "IMPL")
    library.impl("fused_all_gather_matmul", symmetric._fused_all_gather_matmul_fallback, "CPU")
    library.impl("fused_matmul_reduce_scatter", symmetric._fused_matmul_reduce_scatter_fallback, "CPU")
    return library
