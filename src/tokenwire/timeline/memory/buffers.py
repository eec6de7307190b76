"""Workspaces of libraries, buffers of communication, and what Python still points to between steps.

- torch: one cuBLAS workspace a handle and stream; forward and backward run on two threads with a handle each, so two, where a
  product runs through torch at all (aten/src/ATen/cuda/CublasHandlePool.cpp): the head's, unfused attention's, every product
  of the local implementation.
- Transformer Engine: one cuBLAS workspace, and one a stream for grouped products, of which it has four
  (transformer_engine/pytorch/cpp_extensions/gemm.py).
- Pipeline: each chunk's decoder keeps pointing to the input it received last, and that to its gradient
  (megatron-core 0.16.1, transformer/transformer_block.py, set_input_tensor).
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.architecture import Attention, Experts, LatentAttention
from tokenwire.model.tensors import tensors
from tokenwire.plan import Stage
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.part import STANDING, Part
from tokenwire.timeline.memory.states import local_elements

HANDLES = 2
GROUPED_STREAMS = 4
OVERLAP_STREAMS = 3
TORCH = "pytorch, aten/src/ATen/cuda/CublasHandlePool.cpp and CUDABlas.cpp"
ENGINE = "NVIDIA/TransformerEngine, transformer_engine/pytorch/cpp_extensions/gemm.py"


def workspaces(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield the workspaces of cuBLAS that torch and Transformer Engine keep."""
    software, facts = frame.software, frame.software.facts
    engine = frame.dialect == "megatron" and software.transformer_impl == "transformer_engine"
    if stage.has_head or not engine or software.attention == "unfused":
        size = software.torch_workspace
        yield frame.part("workspaces", "cuBLAS of torch, forward and backward", f"{HANDLES}·w", HANDLES * size, more={"w": size}, source=TORCH)
    experts = any(isinstance(frame.arch.layers[i].feed_forward, Experts) for i in stage.layers)
    if engine or (experts and frame.dialect == "megatron"):
        # The router's product goes through Transformer Engine whatever runs the rest (transformer/moe/moe_utils.py).
        yield frame.part("workspaces", "cuBLAS of Transformer Engine", "w", facts.engine_workspace, more={"w": facts.engine_workspace}, source=ENGINE)
        if engine and frame.option("tp_comm_overlap") and software.keeps_placeholders:
            yield frame.part("workspaces", "cuBLAS of Transformer Engine beside overlapped calls", f"{OVERLAP_STREAMS}·w",
                             OVERLAP_STREAMS * facts.engine_workspace, more={"w": facts.engine_workspace}, source=ENGINE)  # fmt: skip
        if experts and engine and frame.option("moe_grouped_gemm"):
            yield frame.part("workspaces", "cuBLAS of Transformer Engine's grouped products", f"{GROUPED_STREAMS}·w",
                             GROUPED_STREAMS * facts.engine_workspace, more={"w": facts.engine_workspace}, source=ENGINE)  # fmt: skip


def buffers(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield buffers that communication and kernels keep."""
    plan, training = frame.plan, frame.plan.training
    residual = frame.residual
    if frame.arch.positions == "rotary" and stage.layers:
        d = max((_rotary(frame.arch.layers[i].mixer) for i in stage.layers), default=0)
        size = 4 * training.sequence_length * d // plan.cp
        yield frame.part("buffers", "angles of the rotary positions, fp32", "4·s·d/c", size, more={"d": d},
                         source="megatron-core 0.16.1, models/common/embeddings/rotary_pos_embedding.py")  # fmt: skip
    if frame.dialect == "megatron" and plan.pp > 1:
        # The first chunk of the first stage receives nothing, and sends nothing back.
        chunks = len(stage.chunks) - stage.has_embedding
        source = "megatron-core 0.16.1, transformer/transformer_block.py, set_input_tensor; pipeline_parallel/schedules.py"
        yield frame.part("buffers", "last inputs of the chunks and their gradients, one more in flight", "(2·n+1)·T'·h·e",
                         (2 * chunks + 1) * residual if chunks else 0, more={"n": chunks}, moments=("between", "optimizer"), source=source)  # fmt: skip
        inside = 0 if chunks < 1 else 3 + (len(stage.chunks) > 1)
        yield frame.part("buffers", "tensors received and sent by the pipeline", f"{inside}·T'·h·e", inside * residual,
                         moments=STANDING, source=source)  # fmt: skip
    yield from _gathered(frame, stage)
    if frame.option("create_attention_mask_in_dataloader", False) and (stage.has_embedding or stage.has_head):
        s = training.sequence_length
        yield frame.part("buffers", "attention mask of the batch", "b·s·s/c", training.micro_batch * s * s // plan.cp,
                         moments=STANDING, source="Megatron-LM, megatron/core/datasets/gpt_dataset.py")  # fmt: skip
    tokens = training.micro_batch * training.sequence_length // plan.cp
    yield frame.part("buffers", "tokens, labels, positions and loss mask of the batch", "28·T", 28 * tokens, moments=STANDING,
                     source="Megatron-LM, pretrain_gpt.py, get_batch")  # fmt: skip


def _gathered(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield the global buffer, as large as the largest that is asked of it.

    Inputs are gathered in it, of the head and of experts where every rank gets every row, and attention of the local
    implementation puts its scores there before the softmax.
    """
    plan, training, arch = frame.plan, frame.plan.training, frame.arch
    if frame.dialect != "megatron":
        return
    width = arch.hidden_size
    sizes = {"head": frame.tokens * width if plan.sequence_parallel and stage.has_head else 0}
    layers = [arch.layers[i] for i in stage.layers]
    if any(isinstance(x.feed_forward, Experts) for x in layers) and frame.option("moe_token_dispatcher_type") == "allgather":
        sizes["experts"] = frame.outside * plan.etp * plan.ep * width if plan.etp * plan.ep > 1 else 0
    if frame.software.transformer_impl == "local":
        heads = max((x.mixer.heads for x in layers if isinstance(x.mixer, (Attention, LatentAttention))), default=0)
        longest = max(training.sequence_length, frame.software.encoder_sequence_length)
        sizes["scores"] = training.micro_batch * heads // plan.tp * longest**2
    name, most = max(sizes.items(), key=lambda item: item[1])
    words = {"head": "input of the head, gathered", "experts": "inputs of the experts, gathered", "scores": "scores before the softmax"}[name]
    yield frame.part("buffers", f"global buffer: {words}", "n·e", most * frame.item, more={"n": most}, count=True,
                     source="megatron-core 0.16.1, utils.py, GlobalMemoryBuffer; tensor_parallel/layers.py, transformer/moe/token_dispatcher.py, "
                     "transformer/dot_product_attention.py")  # fmt: skip


def _rotary(mixer: object) -> int:
    if isinstance(mixer, LatentAttention):
        return 2 * mixer.qk_rope_head_dim
    return mixer.head_dim if isinstance(mixer, Attention) else 0


def placeholders(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield the gradients that fused accumulation hands to autograd in place of the real ones, which are in the buffer already.

    One a shape, kept for ever (NVIDIA/TransformerEngine v2.11, transformer_engine/pytorch/module/base.py, get_dummy_wgrad).
    """
    if frame.dialect != "megatron" or not (frame.software.gradient_accumulation_fusion and frame.software.keeps_placeholders):
        return
    if frame.arch.adapters is not None:
        return  # frozen weights have no gradients, and adapters' products are not Transformer Engine's
    shapes: dict[tuple[int, ...], int] = {}
    layers = frozenset(stage.layers)
    if frame.software.transformer_impl == "transformer_engine":
        for tensor in tensors(frame.arch, "megatron"):
            if tensor.layer is not None and tensor.layer in layers and tensor.part != "router" and len(tensor.shape) > 1:
                each = frame.arch.layers[tensor.layer].feed_forward if tensor.part == "experts" else None
                cut = each.count // frame.plan.ep if isinstance(each, Experts) else 1
                shapes[*tensor.shape, tensor.split_dim or 0] = local_elements(frame, tensor) // cut
    if stage.has_head:
        shapes[frame.plan.vocabulary_size, frame.arch.hidden_size, 0] = frame.plan.vocabulary_size // frame.plan.tp * frame.arch.hidden_size
    elements = sum(shapes.values())
    yield frame.part("buffers", "placeholders of fused weight gradients, one a shape", "n·e", frame.item * elements, more={"n": elements},
                     source="NVIDIA/TransformerEngine v2.11, transformer_engine/pytorch/module/base.py, get_dummy_wgrad")  # fmt: skip
