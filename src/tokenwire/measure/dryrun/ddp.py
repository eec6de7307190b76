"""DistributedDataParallel over real gloo: two processes, and what torch's profiler sees of their calls.

The reducer of DistributedDataParallel is C++ and refuses the fake backend, so this dry run really sends. What a rank says does
not depend on how many there are, but for the tables that all ranks fill: two processes stand for all.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from functools import lru_cache
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
    members = tuple(range(plan.world))
    seen = _seen(arch, config, plan.micro_batches, plan.training.sequence_length)
    return [call for event in seen for call in _calls(event, members)]


@lru_cache(maxsize=1)
def _seen(arch: Architecture, config: DdpPlan, micro_batches: int, sequence_length: int) -> tuple[dict[str, Any], ...]:
    # Every rank says the same, so the ranks of a plan that are asked for one after the other are run once.
    with tempfile.TemporaryDirectory(prefix="tokenwire-ddp-") as folder:
        (Path(folder) / "plan.pickle").write_bytes(pickle.dumps((arch, config, micro_batches, sequence_length)))
        (_fork if _alone() else _spawn)(Path(folder))
        return tuple(json.loads((Path(folder) / "calls.json").read_text()))


def _alone() -> bool:
    # A process with one thread can be forked with all that it has imported; another has locks that nobody would let go.
    tasks = Path("/proc/self/task")
    return "torch" in sys.modules and tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _fork(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=_forked, args=(folder, rank)) for rank in range(PROCESSES)]
    for process in running:
        process.start()
    try:
        for rank, process in enumerate(running):
            process.join(SECONDS)
            if process.exitcode is None:
                raise _failed(f"did not finish in {SECONDS} s")
            if process.exitcode:
                raise _failed(_last_line((folder / f"{rank}.error").read_text("utf-8", "replace")))
    finally:
        for process in running:
            process.kill()
            process.join()


def _forked(folder: Path, rank: int) -> None:
    from tokenwire.measure.dryrun.ddp_process import run

    error = os.open(folder / f"{rank}.error", os.O_WRONLY | os.O_CREAT)
    os.dup2(error, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    run(folder, rank, PROCESSES)


def _spawn(folder: Path) -> None:
    command = [sys.executable, "-m", "tokenwire.measure.dryrun.ddp_process", str(folder)]
    running = [subprocess.Popen([*command, str(rank)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
               for rank in range(PROCESSES)]  # fmt: skip
    try:
        for process in running:
            _, said = process.communicate(timeout=SECONDS)
            if process.returncode:
                raise _failed(_last_line(said))
    except subprocess.TimeoutExpired:
        raise _failed(f"did not finish in {SECONDS} s") from None
    finally:
        for process in running:
            process.kill()
            process.wait()


def _last_line(said: str) -> str:
    last = next((line for line in reversed(said.strip().splitlines()) if line), "no message")
    return f"did not finish ({last[:200]})"


def _failed(rule: str) -> InputError:
    return InputError("a dry run of DistributedDataParallel", rule=rule)


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
