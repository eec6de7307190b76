"""The sizes that every formula of memory is written in.

Symbols: b micro-batch, s sequence length, h hidden, V' padded vocabulary, t tensor, c context, p pipeline, v virtual stages,
T = b·s/c tokens of a micro-batch on a tensor-parallel group, T' = T/t with sequence parallelism, else T: the tokens whose
norms and residuals a rank holds; e bytes of an activation, a heads, g KV heads, d head dim, f feed-forward width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.compiled import HeadAndLoss, blocks_compiled, head_and_loss
from tokenwire.plan.muon import uses_muon
from tokenwire.step.dialects.megatron.sizes import written
from tokenwire.timeline.memory.allocator import counted
from tokenwire.timeline.memory.part import ALWAYS, Kind, Moment, Part
from tokenwire.timeline.memory.software import Software
from tokenwire.units import ITEM_BYTES


@dataclass(frozen=True)
class Frame:
    """A model, its plan and the software that runs it; what formulas need of them, as numbers.

    ``skew`` is the share by which the rank's experts get more rows than the mean.
    """

    arch: Architecture
    plan: Plan
    software: Software
    skew: float = 0.0

    @cached_property
    def item(self) -> int:
        """Return e, the bytes of one number of an activation."""
        precision = self.plan.training.precision
        return int(ITEM_BYTES["bf16" if precision == "fp8" else precision])

    @property
    def fused_activation(self) -> bool:
        """Return whether activation and product with the gate are one kernel that keeps its input only."""
        return self.dialect == "megatron" and self.software.bias_activation_fusion

    @property
    def attention_dropout(self) -> float:
        """Return the dropout of the attention's probabilities: the software's, else the plan's; 0 where the framework has no such option."""
        given = self.software.attention_dropout
        return float(self.option("attention_dropout", 0.0)) if given is None else given

    @property
    def hidden_dropout(self) -> float:
        """Return the dropout of what is added to the residual, as ``attention_dropout``."""
        given = self.software.hidden_dropout
        return float(self.option("hidden_dropout", 0.0)) if given is None else given

    @property
    def muon(self) -> bool:
        """Return whether Muon updates the matrices inside layers."""
        return self.software.optimizer == "muon" or uses_muon(self.plan.training)

    @property
    def layer_wise(self) -> str:
        """Return which rank's share of tensors that are shared out whole is told; none where they are not."""
        shared = self.plan.training.optimizer == "dist_muon" and self.software.layer_wise_optimizer == "none"
        return "fullest" if shared else self.software.layer_wise_optimizer

    @property
    def blocks_compiled(self) -> bool:
        """Return whether torch.compile fuses the operators of the blocks."""
        return blocks_compiled(self.plan.config)

    @property
    def head_and_loss(self) -> HeadAndLoss:
        """Return how head and loss of a micro-batch are computed."""
        return head_and_loss(self.plan.config, self.tokens, self.plan.vocabulary_size, self.arch.hidden_size)

    @property
    def fp8(self) -> bool:
        """Return whether products run in fp8."""
        return self.software.fp8 or self.plan.training.precision == "fp8"

    @property
    def sharding_strategy(self) -> str:
        """Return Megatron-FSDP's strategy, as the plan or the software beside it says; empty where it does not run."""
        planned = self.option("data_parallel_sharding_strategy", "") if self.option("use_megatron_fsdp", False) else ""
        return self.software.data_parallel_sharding_strategy or planned

    @property
    def dialect(self) -> str:
        """Return the framework's name."""
        return self.plan.config.dialect

    @cached_property
    def tokens(self) -> int:
        """Return T = b·s/c."""
        training = self.plan.training
        return training.micro_batch * training.sequence_length // self.plan.cp

    @cached_property
    def outside(self) -> int:
        """Return T', the tokens of norms and residuals."""
        return self.tokens // self.plan.tp if self.plan.sequence_parallel else self.tokens

    @cached_property
    def residual(self) -> int:
        """Return T'·h·e, the bytes of one residual stream on a rank, which is also what a pipeline stage sends."""
        return self.outside * self.arch.hidden_size * self.item

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """Return the value of each symbol."""
        plan, training = self.plan, self.plan.training
        return {
            "b": training.micro_batch, "s": training.sequence_length, "h": self.arch.hidden_size, "V'": plan.vocabulary_size,
            "t": plan.tp, "c": plan.cp, "p": plan.pp, "v": plan.vpp, "m": plan.micro_batches, "D": plan.dp, "T": self.tokens,
            "T'": self.outside, "e": self.item, "L": len(self.arch.layers), "E": plan.ep,
        }  # fmt: skip

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option of the plan's section where its framework has it."""
        return getattr(self.plan.config, name, default)

    def part(
        self, kind: Kind, what: str, formula: str, size: float, *, moments: tuple[Moment, ...] = ALWAYS, source: str = "",
        more: Mapping[str, int] | None = None, count: bool = False,
    ) -> Part:  # fmt: skip
        """Return a part; ``values`` is the formula with numbers put in, ``count`` rounds as the allocator counts one request."""
        number = int(size)
        if count:
            number = counted(number, expandable=self.software.expandable_segments)
        return Part(kind, what, number, moments, formula, self.put_in(formula, more), source)

    def put_in(self, formula: str, more: Mapping[str, int] | None = None) -> str:
        """Return a formula with numbers for its symbols."""
        return written(formula, {symbol: f"{value:,}" for symbol, value in {**self.symbols, **(more or {})}.items()})
