"""One optimizer step of DeepSpeed's own engine on a fake process group, in a process of its own.

DeepSpeed is installed apart (``pip install deepspeed`` beside the ``measure`` extra). Runs ZeRO stages 0 to 3 and Ulysses;
its pipeline and its quantised collectives need kernels or neighbours that are not there.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tokenwire.errors import InputError, MissingExtra
from tokenwire.measure.dryrun.calls import Call
from tokenwire.measure.dryrun.record import require_torch, table
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.deepspeed import DeepspeedPlan

if TYPE_CHECKING:
    import polars as pl

LARGEST = 400_000_000
"""Parameters of the largest model that is run: it is held whole."""
SECONDS = 600


def record(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return the calls of construction and of one step by ``rank`` (``record.COLUMNS``).

    Raises ``InputError`` for what cannot be run, ``MissingExtra`` without torch or DeepSpeed.
    """
    return table(calls(arch, plan, rank), plan, rank)


def calls(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return every call in order."""
    require_torch("a dry run of DeepSpeed")
    config = plan.config
    if not isinstance(config, DeepspeedPlan):
        raise InputError(f"dialect = {config.dialect}", where="[plan]", rule="this dry run is of deepspeed")
    if find_spec("deepspeed") is None:
        raise MissingExtra("a dry run of DeepSpeed (pip install deepspeed)", "measure")
    _possible(arch, plan, config)
    with tempfile.TemporaryDirectory(prefix="tokenwire-deepspeed-") as folder:
        (Path(folder) / "plan.pickle").write_bytes(pickle.dumps((arch, plan, rank)))
        try:
            done = subprocess.run([sys.executable, "-m", "tokenwire.measure.dryrun.deepspeed_process", folder],
                                  capture_output=True, text=True, timeout=SECONDS, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InputError("a dry run of DeepSpeed", rule=f"did not finish in {SECONDS} s") from None
        if done.returncode:
            last = next((line for line in reversed(done.stderr.strip().splitlines()) if line), "no message")
            raise InputError("a dry run of DeepSpeed", rule=f"did not finish ({last[:200]})")
        return [Call(**fields) for fields in pickle.loads((Path(folder) / "calls.pickle").read_bytes())]


def _possible(arch: Architecture, plan: Plan, config: DeepspeedPlan) -> None:
    from tokenwire.measure.dryrun.torch_model import require_plain
    from tokenwire.model.parameters import parameters

    require_plain(arch)
    total = parameters(arch).total
    if total > LARGEST:
        raise InputError(f"model {arch.name} of {total:,} parameters", rule=f"a dry run of DeepSpeed holds it whole, at most {LARGEST:,}")
    if plan.pp > 1 or plan.tp > 1:
        raise InputError(f"pp = {plan.pp}, tp = {plan.tp}", where="[plan]", rule="this dry run is of ZeRO and Ulysses only")
    if config.zero_quantized_weights or config.zero_quantized_gradients:
        raise InputError("zero_quantized_weights", where="[plan]", rule="the kernels that quantise need an accelerator")
