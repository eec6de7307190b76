"""The sizes that every rule of the Megatron dialect is written in, and the one way to write a row.

Symbols: b micro-batch, s sequence length, h hidden, V' padded vocabulary, t tensor, c context, p pipeline, v virtual stages,
e expert, D data parallel, m micro-batches a step, k experts a token; s/c tokens of a sequence are on a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.step.operation import Op, Operation, Phase, Product, Role

T = TypeVar("T")

DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "bf16"}
"""The dtype of parameters and activations by ``[training] precision`` (fp8 changes the arithmetic, not these)."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of one plan and model; ``parts`` of a sequence as they stand in one rank's activations."""

    arch: Architecture
    plan: Plan
    config: MegatronPlan

    @classmethod
    def of(cls, arch: Architecture, plan: Plan) -> Sizes:
        """Return the sizes of a plan of this dialect."""
        assert isinstance(plan.config, MegatronPlan)
        return cls(arch, plan, plan.config)

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """Return the value of each symbol that formulas use."""
        plan, training = self.plan, self.plan.training
        return {
            "b": training.micro_batch, "s": training.sequence_length, "h": self.arch.hidden_size, "t": plan.tp,
            "c": plan.cp, "p": plan.pp, "v": plan.vpp, "e": plan.ep, "m": plan.micro_batches, "D": plan.dp,
            "V'": plan.vocabulary_size, "L": self.own,
        }  # fmt: skip

    @cached_property
    def dtype(self) -> str:
        """Return the dtype of parameters and activations."""
        return DTYPES[self.plan.training.precision]

    @cached_property
    def gradient_dtype(self) -> str:
        """Return the dtype in which gradients are accumulated and sent."""
        return "fp32" if self.config.grad_reduce_in_fp32 else self.dtype

    @cached_property
    def tokens(self) -> int:
        """Return b·s/c, the tokens of a micro-batch on a tensor-parallel group."""
        return self.plan.training.micro_batch * self.plan.training.sequence_length // self.plan.cp

    @cached_property
    def activation(self) -> int:
        """Return b·s/c·h, the elements of one whole activation."""
        return self.tokens * self.arch.hidden_size

    @cached_property
    def next_tokens(self) -> int:
        """Return how many further tokens are predicted, by a module each; their layers are the last ones of ``arch``."""
        return self.config.mtp_num_layers or 0

    @cached_property
    def own(self) -> int:
        """Return the layers of the model itself."""
        return len(self.arch.layers) - self.next_tokens * len(self.arch.next_token_block)

    @cached_property
    def sequence_parallel(self) -> bool:
        """Return whether activations outside the products are cut along the sequence."""
        return self.plan.sequence_parallel and self.plan.tp > 1

    @cached_property
    def data_group(self) -> str:
        """Return the name of the group over which gradients of dense parameters are reduced."""
        return "dp" if self.plan.cp == 1 else "dp_cp"

    @cached_property
    def put_in(self) -> Callable[[str], str]:
        """Return what puts numbers for the symbols of a formula."""
        return cache(lambda formula: written(formula, self.symbols))

    @cached_property
    def group_size(self) -> Callable[[str], int]:
        """Return what gives the ranks of a group."""
        return cache(self.plan.group_size)

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what ``work`` gives, worked out once a plan for each ``key``."""
        if key not in self._kept:
            self._kept[key] = work()
        found: T = self._kept[key]
        return found

    def row(
        self, stage: int, op: Op, group: str, phase: Phase, count: int, elements: int, what: str, *, formula: str,
        source: str, why: str, parallelism: str, dtype: str | None = None, peer: int | None = None, layers: int = 0,
        values: str | None = None, role: Role = "layers", overlapped: Product | None = None,
    ) -> Operation:  # fmt: skip
        """Return a row; the group's size, the dtype and the formula's values are filled in."""
        return Operation(
            stage, op, group, self.group_size(group), phase, count, elements, dtype or self.dtype, parallelism, what,
            peer, layers, formula, self.put_in(formula) if values is None else values, source, why, role, overlapped,
        )  # fmt: skip


def written(formula: str, symbols: Mapping[str, int | str]) -> str:
    """Return ``formula`` with each symbol replaced by its value; a symbol is a letter with optional prime or digits.

    >>> written("b·s/c·h", {"b": 2, "s": 256, "c": 1, "h": 64})
    '2·256/1·64'
    """

    def value(found: re.Match[str]) -> str:
        before, after = formula[found.start() - 1 : found.start()], formula[found.end() : found.end() + 1]
        alone = not before.isalpha() and not after.isalpha() and after not in ("'", "_")
        return str(symbols[found.group()]) if alone else found.group()

    return _any_of(tuple(symbols)).sub(value, formula)


@cache
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    # The longest first: s' before s.
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
