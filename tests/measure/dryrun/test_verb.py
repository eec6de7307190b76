"""The verb ``dryrun``: a journey compared, a function of the user's own, and what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRAIN = """
import os
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("nccl")
    world = int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cpu", (world // 8, 8), mesh_dim_names=("replicate", "shard"))
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.randn(2, 64)).sum().backward()
    print("done")
    dist.destroy_process_group()


def fails():
    raise RuntimeError("no data")
"""


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tokenwire", "dryrun", *arguments], cwd=cwd, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip


@pytest.fixture
def train(tmp_path: Path) -> Path:
    (tmp_path / "my_train.py").write_text(TRAIN)
    (tmp_path / "broken.py").write_text("x = 1\ndef main(:\n    pass\n")
    (tmp_path / "imports_broken.py").write_text("import broken\n")
    (tmp_path / "binary.py").write_bytes(b"\0")
    return tmp_path


def test_a_function_of_the_users_own(train: Path) -> None:
    done = _run("my_train.py:main", "--world", "1024", "--rank", "17", "--json", cwd=train)
    assert done.returncode == 0, done.stderr
    calls = json.loads(done.stdout)["calls"]
    # 4 layers of 64·64 + 64 = 4,160 parameters, gathered forward and again backward, scattered, and a shard of an eighth
    # (520) summed over the 128 replicas.
    facts = [(c["op"], c["group"], c["group_size"], c["phase"], c["count"], c["elements"]) for c in calls]
    assert facts == [
        ("all_gather", "shard", 8, "forward", 4, 4160), ("all_gather", "shard", 8, "backward", 4, 4160),
        ("reduce_scatter", "shard", 8, "gradients", 4, 4160), ("all_reduce", "replicate", 128, "gradients", 4, 520),
    ]  # fmt: skip


def test_it_is_readable_at_80_columns(train: Path) -> None:
    done = _run("my_train.py:main", "--world", "64", cwd=train)
    assert "what it would send" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    # What the function prints does not mix with the table.
    assert "done" not in done.stdout


@pytest.mark.parametrize(("source", "said"), [
    ("my_train.py:fails", "failed at my_train.py:23: RuntimeError: no data"),
    ("my_train.py:nothing", "is not a function there"),
    ("nowhere.py:main", "is not a Python file"),
    ("broken.py:main", "SyntaxError at broken.py:2: invalid syntax"),
    ("imports_broken.py:main", "SyntaxError at broken.py:2: invalid syntax"),
    ("binary.py:main", "SyntaxError at binary.py: source code string cannot contain null bytes"),
])  # fmt: skip
def test_what_goes_wrong_is_one_line(train: Path, source: str, said: str) -> None:
    done = _run(source, cwd=train)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_journey_compared(tmp_path: Path) -> None:
    (tmp_path / "journey.toml").write_text('[plan]\ndialect = "torchtitan"\npp = 2\n')
    done = _run("journey.toml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["equal"]
    assert [part["rank"] for part in facts["ranks"]] == [0, 4]
    assert all(row["equal"] for part in facts["ranks"] for row in part["ops"])
