"""The two ends of the model: what the embedding keeps, and the logits and the loss, which are often the peak.

Logits are T·V'/t numbers in the activation's dtype. Megatron's vocabulary-parallel cross entropy turns them to fp32, makes
the softmax in place and keeps it for the backward (megatron-core 0.16.1, tensor_parallel/cross_entropy.py); fused natively
(fusions/fused_cross_entropy.py) one more fp32 copy stands for a moment; Transformer Engine's kernel writes gradients over the
logits (transformer_engine/pytorch/triton/cross_entropy.py). torch's own cross entropy keeps the log-softmax in fp32 and has two gradients of that size beside it.
Compiled, the loss keeps the logits as they are, and their gradient is made from them in one pass: written over them where head and
loss are in one graph (torch donates what its own forward saved to the backward), beside them where the loss is a graph of its own.
Chunked losses and Liger's have the logits of one chunk, and the gradients of head and input while chunks are added to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layers import layer_activations
from tokenwire.timeline.memory.part import AT_HEAD, STANDING, Part
from tokenwire.timeline.memory.states import has_next_tokens

CROSS_ENTROPY = "megatron-core 0.16.1, tensor_parallel/cross_entropy.py"
LAYERS = "megatron-core 0.16.1, tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication"


def embedding(frame: Frame, stage: Stage, micro_batches: int) -> Iterator[Part]:
    """Yield what the embedding keeps of the micro-batches in flight."""
    if stage.has_embedding and frame.hidden_dropout:
        yield frame.part("activations", "embedding: mask of the dropout", "n·T'·h", micro_batches * frame.outside * frame.arch.hidden_size,
                         moments=STANDING, more={"n": micro_batches}, source="Korthikanti et al. 2022, section 4.3")  # fmt: skip


def logits_bytes(frame: Frame) -> tuple[int, str]:
    """Return the bytes of one logit at the loss, and why."""
    e, loss = frame.item, frame.head_and_loss
    if loss.implementation == "liger":
        return e, "logits of a chunk, which gradients are written over"
    if frame.dialect != "megatron" and frame.plan.tp > 1 and not frame.option("disable_loss_parallel", True):
        # torch/distributed/tensor/parallel/loss.py, _log_softmax
        return e + 12, "logits, in fp32, less their maximum, and their exponentials"
    if loss.graph == "model":
        return e, "logits, which gradients are written over"
    if loss.graph == "loss":
        return 2 * e, "logits and their gradient"
    if frame.dialect != "megatron":
        return 12, "log-softmax of the logits, the gradient of the loss and that of the logits, in fp32"
    if not frame.option("cross_entropy_loss_fusion"):
        return e + 4 if e < 4 else 4, "logits and their softmax in fp32"
    if frame.option("cross_entropy_fusion_impl") == "te":
        return e, "logits, which gradients are written over"
    return e + 8 if e < 4 else 8, "logits, in fp32, and the softmax"


def next_tokens(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield what the layers of multi-token prediction keep: norms, the product of both, a layer like the last, logits and loss."""
    arch, plan = frame.arch, frame.plan
    if not has_next_tokens(frame, stage):
        return
    n, source = frame.option("mtp_num_layers", 0), "megatron-core 0.16.1, transformer/multi_token_prediction.py"
    # With several chunks most is held when the last one, which these belong to, holds none.
    standing = STANDING if len(stage.chunks) == 1 else AT_HEAD
    for one in (kept for layer in arch.next_token_block for kept in layer_activations(frame, layer).saved):
        yield frame.part("activations", f"multi-token prediction: {one.what}", f"{n}·({one.formula})", n * one.size, moments=standing, source=source)
    yield frame.part("activations", "multi-token prediction: inputs of its norms, of their product, its final norm", f"{n}·6·T'·h·e",
                     n * 6 * frame.residual, moments=standing, source=source)  # fmt: skip
    each = frame.item if frame.option("cross_entropy_fusion_impl") == "te" else 4
    yield frame.part("head", "multi-token prediction: softmax of its logits", f"{n}·{each}·T·V'/t",
                     n * each * frame.tokens * plan.vocabulary_size // plan.tp, moments=standing, source=source)  # fmt: skip


def head(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield what stands at the loss of one micro-batch on the last stage, and as the head's product goes backward."""
    if not stage.has_head:
        return
    arch, plan, e = frame.arch, frame.plan, frame.item
    if arch.final_norm:
        yield frame.part("head", "final norm: its input and output", "2·T'·h·e", 2 * frame.residual, moments=AT_HEAD,
                         source="Korthikanti et al. 2022, section 4.3")  # fmt: skip
    if frame.software.heads.startswith("bert"):
        yield frame.part("head", "BERT's head: input of its activation, input and output of its norm", "3·T'·h·e", 3 * frame.residual,
                         moments=AT_HEAD, source="megatron-core 0.16.1, models/bert/bert_lm_head.py")  # fmt: skip
    each, why = logits_bytes(frame)
    at_once = frame.head_and_loss.tokens
    logits = at_once * plan.vocabulary_size // plan.tp
    if frame.option("disable_loss_parallel"):
        logits *= plan.tp
    source = CROSS_ENTROPY if frame.dialect == "megatron" else "torch 2.13, torch/nn/functional.py, cross_entropy"
    tokens = "T" if at_once == frame.tokens else "C"
    yield frame.part("head", why, f"{each}·{tokens}·V'/t", logits * each, moments=("loss",), more={"C": at_once}, source=source)
    yield from _over_chunks(frame)
    if frame.software.defer_embedding_wgrad_compute:
        held = plan.micro_batches - 1
        held = min(held, frame.software.wgrad_deferral_limit or held)
        yield frame.part("head", "gradients of logits and inputs of the head, put off", "n·(T·V'/t·e+T'·h·e)", held * (logits * e + frame.residual),
                         moments=AT_HEAD, more={"n": held}, source=f"{LAYERS} (wgrad_deferral_limit)")  # fmt: skip
    yield frame.part("head", "gradient of the logits", f"{tokens}·V'/t·e", logits * e, moments=("head",), more={"C": at_once}, source=CROSS_ENTROPY)
    if frame.head_and_loss.implementation == "liger":
        return
    whole = frame.tokens * arch.hidden_size * e
    formula, size = ("T·h·e+T'·h·e", whole + frame.residual) if plan.sequence_parallel else ("T·h·e", whole)
    yield frame.part("head", "gradient of the head's input", formula, size, moments=("head",), source=LAYERS)
    fused = frame.dialect == "megatron" and frame.software.gradient_accumulation_fusion and frame.software.keeps_placeholders
    if not fused and frame.arch.adapters is None:
        yield frame.part("head", "gradient of the head's weight, before it is added", "V'/t·h·e", plan.vocabulary_size // plan.tp * arch.hidden_size * e,
                         moments=("head",), source=LAYERS)  # fmt: skip


def _over_chunks(frame: Frame) -> Iterator[Part]:
    """Yield the gradients that the chunks of a loss are added to: of the head's input, and with Liger of the head's weight."""
    h, plan = frame.arch.hidden_size, frame.plan
    how = frame.head_and_loss.implementation
    if how == "chunked":
        yield frame.part("head", "gradient of the head's input over the chunks, fp32", "4·T·h", 4 * frame.tokens * h, moments=AT_HEAD,
                         source="pytorch/torchtitan, torchtitan/components/loss.py, GradAccumulator")  # fmt: skip
    if how == "liger":
        source = "linkedin/Liger-Kernel, src/liger_kernel/ops/fused_linear_cross_entropy.py"
        yield frame.part("head", "gradient of the head's input over the chunks", "T·h·e", frame.residual, moments=AT_HEAD, source=source)
        yield frame.part("head", "gradient of the head's weight over the chunks", "V'/t·h·e", plan.vocabulary_size // plan.tp * h * frame.item,
                         moments=AT_HEAD, source=source)  # fmt: skip
