"""What torch.compile leaves of a block and of the logits: as torch's own partitioner and code generator have it, and by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tokenwire.errors import InputError
from tokenwire.model import architecture
from tokenwire.model.config import ModelConfig
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Software, memory
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layers import layer_activations

MODEL: dict[str, Any] = {
    "hidden_size": 512, "heads": 8, "kv_heads": 4, "feed_forward": 1408, "gated": True, "norm": "rms", "activation": "silu", "positions": "learned",
    "tied_embeddings": False, "max_positions": 1024, "bias": False, "layers": 2, "vocabulary_size": 4096,
}  # fmt: skip
COMPILED = {"dialect": "ddp", "compile_enable": True}


def _plan(options: dict[str, Any], model: dict[str, Any] | None = None, **training: Any) -> Plan:
    sizes = {"sequence_length": 1024, "micro_batch": 2, "global_batch": 16, **training}
    return resolve(read_plan(options), TrainingConfig(**sizes), architecture(ModelConfig(**(model or MODEL))), 8)


def _head(options: dict[str, Any], moment: str, **training: Any) -> int:
    arch = architecture(ModelConfig(**MODEL))
    plan = _plan(options, **training)
    return memory(arch, plan).stages[0].of("head", moment)  # type: ignore[arg-type]


def _saved(model: Any, x: Any) -> int:
    """Return the bytes that torch's partitioner hands from the forward to the backward of ``model``, weights excepted, each storage once."""
    import torch
    from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    graphs: list[Any] = []

    def compiler(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    names, weights = zip(*model.named_parameters(), strict=True)

    def forward(*arguments: Any) -> Any:
        return torch.func.functional_call(model, dict(zip(names, arguments, strict=False)), arguments[len(names) :])

    aot_function(forward, compiler, compiler, partition_fn=min_cut_rematerialization_partition, decompositions=select_decomp_table())(*weights, x)
    kept = {}
    for node in next(node for node in graphs[0].graph.nodes if node.op == "output").args[0][1:]:
        root = node
        while getattr(getattr(root.target, "overloadpacket", None), "__name__", "") in ("view", "alias", "permute", "reshape", "t", "_unsafe_view", "transpose"):
            root = root.args[0]
        if root.op != "placeholder" or root.name == f"primals_{len(names) + 1}":
            kept[root.name] = node.meta["val"].numel() * node.meta["val"].element_size()
    return sum(kept.values())


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"gated": False, "activation": "gelu"}, {"norm": "layer"}, {"kv_heads": 8, "feed_forward": 2048}])
def test_a_block_keeps_what_the_partitioner_keeps(more: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tokenwire.measure.dryrun.torch_model import Block

    arch = architecture(ModelConfig(**{**MODEL, **more}))
    with FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_default_dtype(torch.bfloat16)
        try:
            block = Block(arch, arch.layers[0])
        finally:
            torch.set_default_dtype(torch.float32)
        kept = _saved(block, torch.zeros(2, 1024, 512, dtype=torch.bfloat16, requires_grad=True))
    frame = Frame(arch, _plan(COMPILED, {**MODEL, **more}), Software())
    # The statistics of norms differ by their dtype, on CPUs and GPUs.
    assert layer_activations(frame, arch.layers[0]).total == pytest.approx(kept, rel=0.002)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["head and loss", "loss alone"])
def test_the_gradient_of_the_logits_is_written_over_them_in_one_graph(together: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch._inductor.utils import run_and_get_code

    tokens, vocabulary = 64, 320
    x = torch.randn(tokens, 32, dtype=torch.bfloat16)
    weight = torch.randn(vocabulary, 32, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(tokens, dtype=torch.int64)

    def loss_of(logits: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.float(), labels)

    def step() -> None:
        if together:
            torch.compile(lambda: loss_of(x @ weight.t()), dynamic=False)().backward()
        else:
            torch.compile(loss_of, dynamic=False)(x @ weight.t()).backward()

    torch._dynamo.reset()
    _, codes = run_and_get_code(step)
    made = [line for code in codes for line in code.splitlines() if re.search(rf"= empty_strided\w*\(\({tokens}, {vocabulary}\)", line)]
    # Together: the logits, which the gradient takes the place of. Alone: the gradient, beside the logits that were handed in.
    assert len(made) == 1
    assert all("bfloat16" in line for line in made)
    counted = 2 * tokens * vocabulary * (1 if together else 2)
    plan = _plan({**COMPILED, "dialect": "ddp" if together else "torchtitan"})
    arch = architecture(ModelConfig(**MODEL))
    part = next(p for p in memory(arch, plan).stages[0].parts if p.what.startswith("logits"))
    assert part.size == counted * (2 * 1024 * 4096) // (tokens * vocabulary)


def test_logits_by_hand() -> None:
    # 2·1,024 tokens of 4,096 logits: in eager mode log-softmax and two gradients in fp32.
    logits, norm = 2 * 1024 * 4096, 2 * (2 * 1024 * 512) * 2
    assert _head({"dialect": "ddp"}, "loss") == 12 * logits + norm
    assert _head({"dialect": "ddp", "compile_enable": True}, "loss") == 2 * logits + norm
    assert _head({"dialect": "ddp", "compile_enable": True, "compile_components": ["loss"]}, "loss") == 4 * logits + norm
    assert _head({"dialect": "torchtitan", "compile_enable": True}, "loss") == 4 * logits + norm
    # Chunks: an eighth, and the gradient of the head's input in fp32.
    assert _head({"dialect": "torchtitan", "loss_implementation": "chunked"}, "loss") == 12 * logits // 8 + norm + 4 * 2 * 1024 * 512
    # Liger: ⌈4,096/512⌉ = 8 times as many logits as inputs, so 2,048/8 = 256 tokens at once; gradients of input and weight in bf16.
    assert _head({"dialect": "ddp", "loss_implementation": "liger"}, "loss") == 2 * 256 * 4096 + norm + 2 * 2048 * 512 + 2 * 4096 * 512


def test_more_chunks_never_need_more() -> None:
    sizes = [_head({"dialect": "torchtitan", "loss_implementation": "chunked", "loss_chunks": n}, "loss") for n in (1, 2, 4, 8, 64)]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"dialect": "ddp", "loss_chunks": 2}, "needs loss_implementation"),
        ({"dialect": "ddp", "loss_implementation": "chunked", "loss_chunks": 3}, "must divide the 2,048 tokens"),
        ({"dialect": "torchtitan", "loss_implementation": "liger"}, "has its own chunked loss"),
    ],
)
def test_chunks_that_cannot_be(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        _plan(options)
