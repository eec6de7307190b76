"""DistributedDataParallel over real gloo: two processes, and what torch's profiler sees of their calls.

The reducer of DistributedDataParallel is C++ and refuses the fake backend, so this dry run really sends. What a rank says does
not depend on how many there are, but for the tables that all ranks fill: two processes stand for all.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.measure.dryrun.calls import OPERATORS, Call
from tokenwire.measure.dryrun.record import require_torch, table
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.ddp import DdpPlan

if TYPE_CHECKING:
    import polars as pl

PROCESSES = 2
LARGEST = 400_000_000
"""Parameters of the largest model that is run: both processes hold it, its gradients and a copy for buckets."""
SECONDS = 600

_TYPES = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64", "long int": "int64", "int": "int32",
          "unsigned char": "uint8", "bool": "bool"}  # fmt: skip


def record(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return the calls of construction and of one step after the first (``record.COLUMNS``).

    Raises ``InputError`` for a model that cannot be built or is too large, ``MissingExtra`` without torch.
    """
    config = plan.config
    if not isinstance(config, DdpPlan):
        raise InputError(f"dialect = {config.dialect}", where="[plan]", rule="this dry run is of ddp")
    if config.comm_hook == "bf16_compress_hook":
        raise InputError("comm_hook = bf16_compress_hook", where="[plan]", rule="torch runs this hook on NCCL and XCCL only",
                         nearest='comm_hook = "fp16_compress_hook"')  # fmt: skip
    if plan.training.optimizer == "dist_muon":
        raise InputError('optimizer = "dist_muon"', where="[training]", rule="this dry run is of DistributedDataParallel, which it goes without",
                         nearest='optimizer = "muon"')  # fmt: skip
    return table(calls(arch, plan, config), plan, rank)


def replicated_calls(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return the calls of torchtitan's replicas without sharding, which is DistributedDataParallel."""
    return calls(arch, plan, DdpPlan(bucket_cap_mb=100))


def calls(arch: Architecture, plan: Plan, config: DdpPlan) -> list[Call]:
    """Run two processes and return what rank 0 called for, its group widened to the plan's ranks."""
    require_torch("a dry run of DistributedDataParallel")
    from tokenwire.measure.dryrun.torch_model import require_plain
    from tokenwire.model.parameters import parameters

    require_plain(arch)
    total = parameters(arch).total
    if total > LARGEST:
        raise InputError(f"model {arch.name} of {total:,} parameters",
                         rule=f"a dry run of DistributedDataParallel holds real parameters, at most {LARGEST:,}")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tokenwire-ddp-") as folder:
        (Path(folder) / "plan.pickle").write_bytes(pickle.dumps((arch, plan, config)))
        command = [sys.executable, "-m", "tokenwire.measure.dryrun.ddp_process", folder]
        running = [subprocess.Popen([*command, str(rank)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                   for rank in range(PROCESSES)]  # fmt: skip
        _finish(running)
        seen: list[dict[str, Any]] = json.loads((Path(folder) / "calls.json").read_text())
    members = tuple(range(plan.world))
    return [call for event in seen for call in _calls(event, members)]


def _finish(running: list[subprocess.Popen[str]]) -> None:
    try:
        for process in running:
            _, said = process.communicate(timeout=SECONDS)
            if process.returncode:
                last = next((line for line in reversed(said.strip().splitlines()) if line), "no message")
                raise InputError("a dry run of DistributedDataParallel", rule=f"did not finish ({last[:200]})")
    except subprocess.TimeoutExpired:
        raise InputError("a dry run of DistributedDataParallel", rule=f"did not finish in {SECONDS} s") from None
    finally:
        for process in running:
            process.kill()
            process.wait()


def _calls(event: dict[str, Any], members: tuple[int, ...]) -> list[Call]:
    name = event["name"].removeprefix("c10d::")
    operator = OPERATORS[name]
    dims = event["dims"][operator.full if name != "allgather_" else 1]
    shapes = dims if dims and isinstance(dims[0], list) else [dims]
    elements = 0
    for shape in shapes:
        product = 1
        for size in shape:
            product *= size
        elements += product
    # The profiler shows one rank's part of an all_gather of lists.
    elements *= len(members) if name == "allgather_" else 1
    return [Call(operator.op, members, elements, _TYPES.get(event["type"], event["type"]), event["phase"])]
