"""The four parallelization methods in their pure form, each over n GPUs, and which n of a method works for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.plan import alike, read_plan, resolve
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan, PlanConfig, TrainingConfig


@dataclass(frozen=True)
class Method:
    """A way to use n GPUs: the ``[plan]`` section for it. ``axis`` is the size that grows with n, "" for data."""

    name: str
    title: str
    axis: str
    section: Mapping[str, str | int | bool]
    asks: str

    def plan_section(self, n: int) -> dict[str, str | int | bool]:
        """Return the ``[plan]`` section for n GPUs."""
        return {**self.section, **({self.axis: n} if self.axis else {})}


METHODS: dict[str, Method] = {
    "data": Method(
        "data", "data", "", {"dialect": "megatron"},
        "every GPU has the whole model; its P gradients of {gradient_bytes:g} B are all-reduced once per step: 2(n-1)/n·{gradient_bytes:g}P B by each GPU",
    ),
    "tensor": Method(
        "tensor", "tensor", "tp", {"dialect": "megatron", "sequence_parallel": True},
        "every matrix is cut n ways; activations of s·b·h are gathered and reduce-scattered in every layer, forward and backward",
    ),
    "pipeline": Method(
        "pipeline", "pipeline", "pp", {"dialect": "megatron"},
        "every GPU has L/n layers; activations of s·b·h cross each of n-1 boundaries forward, their gradients backward; tied embeddings are all-reduced between its ends",
    ),
    "fsdp": Method(
        "fsdp", "FSDP", "", {"dialect": "torchtitan"},
        "every GPU has 1/n of every parameter; they are gathered in {parameters} forward and backward, and their gradients reduce-scattered in {gradients}",
    ),
}  # fmt: skip
"""Methods by name, in the order of the tables."""


def explained(method: Method, plan: Plan) -> str:
    """Return what a method sends, with the precisions of the plan."""
    training = plan.training
    gradients = plan.config.gradient_dtype(training)
    parameters = "bf16" if training.precision == "fp8" else training.precision
    return method.asks.format(gradient_bytes=ITEM_BYTES[gradients], gradients=gradients.upper(), parameters=parameters.upper())


def plan_of(method: Method, arch: Architecture, training: TrainingConfig, n: int, own: PlanConfig | None = None) -> Plan:
    """Return the plan of a pure method over the most GPUs up to n that work for this model and batch.

    ``own`` is a plan of which it keeps what does not depend on sizes, such as the precision of gradients. Raises the ``InputError`` of n itself where no number from 2 to n works.
    """
    first: InputError | None = None
    for size in range(n, 1, -1):
        try:
            section = method.plan_section(size)
            return resolve(alike(section, own, training) if own else read_plan(section), training, arch, size)
        except InputError as error:
            first = first or error
    raise first or InputError(f"--gpus {n}", rule="a method of parallelization needs at least two GPUs", nearest="--gpus 2")
