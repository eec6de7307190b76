"""What whole runs showed of a machine under a framework: by how much its kernels fall short of what each reaches alone.

A *setting* is a GPU, a framework and its time, a precision, experts or none. Its four numbers are fitted to measured steps of that setting
by validation/calibrate.py, which writes ``catalog/calibrated.toml`` and says there how far off they leave runs that they were not fitted to:

    products, attention, memory   speed of such kernels in a long run over their speed alone (as ``efficiency`` has it)
    beside                        seconds that products lose for each second of communication beside them
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from tokenwire.errors import unknown
from tokenwire.model.architecture import Architecture, Experts, StateSpace
from tokenwire.plan import Plan
from tokenwire.timeline.accelerator import Accelerator

NONE = "none"
"""The name that stands for no calibration."""


@dataclass(frozen=True)
class Setting:
    """A calibration: whom it is for (``hybrid``: models with state-space blocks), its four numbers, from how many ``rows`` of ``source``, and the mean error of rows left out."""

    name: str
    gpus: tuple[str, ...]
    dialects: tuple[str, ...]
    precision: str
    experts: bool | None
    products: float
    attention: float
    memory: float
    beside: float
    rows: int
    error: float
    source: str
    usual: bool
    hybrid: bool = False


@cache
def settings() -> tuple[Setting, ...]:
    """Return all settings of the catalog.

    >>> all(0 < one.products <= 1.31 and 0 <= one.beside <= 2 for one in settings())
    True
    """
    text = (resources.files("tokenwire.timeline") / "catalog" / "calibrated.toml").read_text("utf-8")
    return tuple(
        Setting(**{**facts, "name": name, "gpus": tuple(facts["gpus"]), "dialects": tuple(facts["dialects"]), "experts": facts.get("experts")})
        for name, facts in tomllib.loads(text).items()
    )  # fmt: skip


def named(name: str) -> Setting | None:
    """Return the setting of that name, None for ``none``. Raises ``InputError`` for another."""
    for one in settings():
        if one.name == name:
            return one
    if name == NONE:
        return None
    raise unknown("setting", name[:80], (NONE, *(one.name for one in settings())))


def precision_of(plan: Plan) -> str:
    """Return what products are computed in: bf16, fp16, fp32, fp8, or mxfp8 where Megatron's recipe says so."""
    precision = plan.training.precision
    mx = precision == "fp8" and getattr(plan.config, "fp8_recipe", "") == "mxfp8"
    return "mxfp8" if mx else precision


def usual(gpu: Accelerator, arch: Architecture, plan: Plan) -> Setting | None:
    """Return the setting that is nearest to a plan: its GPU and framework, then experts or none, then precision; None where there is none."""
    experts = any(isinstance(layer.feed_forward, Experts) for layer in arch.layers)
    precision = precision_of(plan).replace("fp16", "bf16")
    near = [one for one in settings() if one.usual and gpu.kind in one.gpus and plan.config.dialect in one.dialects]
    near = [one for one in near if one.experts in (None, experts)] or near
    hybrid = any(isinstance(layer.mixer, StateSpace) for layer in arch.layers)
    near = [one for one in near if one.hybrid == hybrid] or near
    return max(near, key=lambda one: (one.precision == precision, one.precision[-3:] == precision[-3:]), default=None)


def calibrated(gpu: Accelerator, setting: Setting | None, precision: str) -> Accelerator:
    """Return the accelerator as it is in a setting, with a note of what that rests on."""
    if setting is None:
        return replace(gpu, assumed=(*gpu.assumed, "kernels as fast as each is alone: no long run of this setting is known"))
    note = (
        f"as {setting.rows} runs of {setting.name} showed ({setting.source}): products at {setting.products:.0%}, attention at "
        f"{setting.attention:.0%}, memory at {setting.memory:.0%} of their speed alone; mean error of runs left out {setting.error:.1%}"
    )
    if setting.precision != precision.replace("fp16", "bf16"):
        note += f"; those ran in {setting.precision}"
    if setting.precision == "nvfp4":
        gpu = gpu.in_four_bits()
    return replace(
        gpu, sustained=setting.products, sustained_attention=setting.attention, sustained_memory=setting.memory, beside=setting.beside,
        assumed=(*gpu.assumed, note),
    )  # fmt: skip
