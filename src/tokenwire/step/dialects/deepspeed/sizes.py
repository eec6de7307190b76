"""The sizes that every row needs. Symbols: b micro-batch, s sequence, h hidden, c Ulysses ranks, n ranks that ZeRO cuts over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenwire.model.architecture import Architecture, Tensor
from tokenwire.model.tensors import tensors
from tokenwire.plan import Plan, Stage
from tokenwire.plan.deepspeed import DeepspeedPlan
from tokenwire.step.operation import Op, Operation, Phase


@dataclass(frozen=True)
class Sizes:
    """An architecture under a plan; ``ranks`` n, ``dtype`` of parameters, ``sent`` dtype of gradients."""

    arch: Architecture
    plan: Plan
    config: DeepspeedPlan
    ranks: int
    dtype: str
    sent: str

    @staticmethod
    def of(arch: Architecture, plan: Plan) -> Sizes:
        """Return the sizes of a plan of this dialect."""
        config = plan.config
        assert isinstance(config, DeepspeedPlan)
        # Gradients of sequence-parallel models are sent in fp32 (runtime/config.py, seq_parallel_communication_data_type).
        sent = "fp32" if plan.cp > 1 else config.sent_dtype(plan.training)
        return Sizes(arch, plan, config, plan.group_size("dp_cp"), config.dtype(plan.training), sent)

    def stage_tensors(self, stage: Stage) -> list[Tensor]:
        """Return the tensors of a stage in order of registration."""
        layers = set(stage.layers)
        out = []
        for tensor in tensors(self.arch):
            if tensor.layer is not None:
                here = tensor.layer in layers
            else:
                here = stage.has_head if tensor.part in ("final_norm", "head") else stage.has_embedding
            if here:
                out.append(tensor)
        if self.arch.tied_embeddings and stage.has_head and not stage.has_embedding:
            # PipelineModule registers what stages share before its layers (runtime/pipe/module.py, tied_modules).
            out.insert(0, Tensor("head.weight", "head", (self.arch.vocabulary_size, self.arch.hidden_size)))
        return out

    def row(
        self, stage: Stage, op: Op, group: str, phase: Phase, count: int, elements: int, dtype: str, parallelism: str,
        what: str, **more: Any,
    ) -> Operation:
        """Return a row on a group of the plan; ZeRO's group is ``dp`` where there is no sequence parallelism."""
        group = "dp" if group == "dp_cp" and self.plan.cp == 1 else group
        return Operation(stage.index, op, group, self.plan.group_size(group), phase, count, elements, dtype, parallelism,
                         what, **more)  # fmt: skip
