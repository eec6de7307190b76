"""What torch.compile fuses of a step, and how the loss is computed: options that the frameworks on torch share.

Names: pytorch/torchtitan, torchtitan/config/configs.py, CompileConfig; torchtitan/components/loss.py, ChunkedLossWrapper;
linkedin/Liger-Kernel, src/liger_kernel/ops/fused_linear_cross_entropy.py. What torch's partitioner keeps of a compiled block is
checked with torch itself (tests/timeline/memory/test_compiled.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokenwire.config import Positive
from tokenwire.plan.base import PlanConfig

if TYPE_CHECKING:
    from tokenwire.plan.rules import Broken
    from tokenwire.plan.training import TrainingConfig

LossGraph = Literal["eager", "loss", "model"]
TORCHTITAN_CHUNKS = 8
"""torchtitan/components/loss.py, ChunkedLossWrapper.Config.num_chunks."""


class CompileOptions(PlanConfig):
    """Options of torch.compile and of the loss.

    ``compile_enable`` compiles what ``compile_components`` name: ``model`` its blocks, ``loss`` the loss. With
    ``loss_implementation`` ``chunked`` the head and the loss go forward and backward chunk by chunk of the tokens
    (``loss_chunks``, 8 by default); ``liger`` is Liger-Kernel's product of the head fused with the loss, which chooses its
    chunks itself.
    """

    compile_enable: bool = False
    compile_components: tuple[Literal["model", "loss"], ...] = ("model", "loss")
    loss_implementation: Literal["torch", "chunked", "liger"] = "torch"
    loss_chunks: Positive | None = None

    @property
    def blocks_compiled(self) -> bool:
        """Return whether the compiler fuses the operators of the blocks."""
        return self.compile_enable and "model" in self.compile_components

    @property
    def loss_graph(self) -> LossGraph:
        """Return in which graph the loss is: the model's, where the model returns its loss and both are compiled, or none."""
        if not self.compile_enable or "loss" not in self.compile_components:
            return "eager"
        return "model" if self.one_graph and self.blocks_compiled and self.loss_implementation == "torch" else "loss"

    @property
    def one_graph(self) -> bool:
        """Return whether blocks, head and loss are compiled together, as a model that returns its loss is."""
        return True

    def tokens_at_once(self, tokens: int, vocabulary: int, hidden: int) -> int:
        """Return the tokens of which logits stand at the same time.

        >>> liger = CompileOptions(loss_implementation="liger")
        >>> liger.tokens_at_once(16_384, 32_000, 4_096)     # 8 chunks, as the comment of the kernel has it
        2048
        """
        if self.loss_implementation == "liger":
            each = -(-tokens // -(-vocabulary // hidden))
            return min(tokens, 1 << (each - 1).bit_length())
        return tokens // self.chunks

    @property
    def chunks(self) -> int:
        """Return the chunks of a loss whose chunks are chosen."""
        return (self.loss_chunks or TORCHTITAN_CHUNKS) if self.loss_implementation == "chunked" else 1


@dataclass(frozen=True)
class HeadAndLoss:
    """How head and loss are computed: the graph of the loss, the tokens whose logits stand at once, and what gathers gradients."""

    graph: LossGraph
    tokens: int
    implementation: Literal["torch", "chunked", "liger"]


def head_and_loss(config: PlanConfig, tokens: int, vocabulary: int, hidden: int) -> HeadAndLoss:
    """Return how a plan computes head and loss of a micro-batch of ``tokens``; frameworks without these options as torch does."""
    if not isinstance(config, CompileOptions):
        return HeadAndLoss("eager", tokens, "torch")
    return HeadAndLoss(config.loss_graph, config.tokens_at_once(tokens, vocabulary, hidden), config.loss_implementation)


def blocks_compiled(config: PlanConfig) -> bool:
    """Return whether torch.compile fuses the operators of the blocks of a plan."""
    return isinstance(config, CompileOptions) and config.blocks_compiled


def loss_in_one_kernel(config: PlanConfig) -> bool:
    """Return whether one kernel each way makes the loss of the logits: the compiler's, or Liger's."""
    return isinstance(config, CompileOptions) and (config.loss_graph != "eager" or config.loss_implementation == "liger")


def norms_apart(config: PlanConfig) -> int | None:
    """Return how many norms of a block are kernels of their own, None where all are: one kernel makes a residual sum and the norm after it.

    Where each block is a graph the first norm of it is apart from the sum of the block before.
    """
    if not isinstance(config, CompileOptions) or not config.blocks_compiled:
        return None
    return 0 if config.one_graph else 1


def broken_loss(config: CompileOptions, training: TrainingConfig) -> Iterator[Broken]:
    """Yield the rules of the loss's chunks that a choice breaks."""
    from tokenwire.plan.rules import Broken

    if config.loss_chunks is not None and config.loss_implementation != "chunked":
        yield Broken("plan", "loss_chunks", 'needs loss_implementation = "chunked"', (("plan", "loss_implementation"),))
        return
    tokens = training.micro_batch * training.sequence_length // config.cp
    if tokens % config.chunks:
        yield Broken("plan", "loss_chunks", f"must divide the {tokens:,} tokens of a micro-batch on a rank")
