"""The recorder: operators, phases, groups, worlds; comparisons that can fail."""

from __future__ import annotations

import pytest

from tests.step.models import llama, plan_of
from tokenwire.errors import InputError
from tokenwire.measure.dryrun import default_ranks, recorded
from tokenwire.measure.dryrun.calls import Call
from tokenwire.measure.dryrun.compare import compare
from tokenwire.measure.dryrun.record import Recorder, described, fake_world, table
from tokenwire.step import operations

pytestmark = pytest.mark.torch


def test_sizes_are_of_the_full_tensor() -> None:
    import torch
    import torch.distributed as dist

    recorder = Recorder()
    with fake_world(5, 8), recorder.recording():
        dist.all_reduce(torch.zeros(10))
        dist.all_gather_into_tensor(torch.zeros(80), torch.zeros(10))
        dist.reduce_scatter_tensor(torch.zeros(10), torch.zeros(80))
        dist.all_to_all_single(torch.zeros(16), torch.zeros(16))
        dist.broadcast(torch.zeros(3, dtype=torch.int64), 0)
        dist.send(torch.zeros(7, dtype=torch.bfloat16), 2)
        dist.recv(torch.zeros(7, dtype=torch.bfloat16), 1)
        dist.barrier()
    seen = [(call.op, call.elements, call.dtype, call.peer) for call in recorder.calls]
    assert seen == [
        ("all_reduce", 10, "fp32", None), ("all_gather", 80, "fp32", None), ("reduce_scatter", 80, "fp32", None),
        ("all_to_all", 16, "fp32", None), ("broadcast", 3, "int64", None), ("send", 7, "bf16", 2), ("recv", 7, "bf16", 1),
        ("barrier", 0, "uint8", None),
    ]  # fmt: skip
    assert recorder.calls[0].members == tuple(range(8))


def test_functional_collectives_count_the_same() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as funcol

    recorder = Recorder()
    with fake_world(0, 4), recorder.recording():
        group = dist.group.WORLD
        funcol.wait_tensor(funcol.all_gather_tensor(torch.zeros(10), 0, group))
        funcol.wait_tensor(funcol.reduce_scatter_tensor(torch.zeros(40), "sum", 0, group))
    assert [(call.op, call.elements) for call in recorder.calls] == [("all_gather", 40), ("reduce_scatter", 40)]


def test_phases_follow_the_step() -> None:
    import torch
    import torch.distributed as dist

    class Talking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(x.detach().clone())
            return x * 1

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(grad.clone())
            return grad

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Talking.apply(x * self.weight)

    layer, recorder = Layer(), Recorder()
    with fake_world(0, 2), recorder.recording():
        dist.all_reduce(torch.zeros(1))
        loss = layer(torch.ones(4)).sum()
        dist.all_reduce(torch.zeros(1))
        loss.backward()
        dist.all_reduce(torch.zeros(1))
    assert [call.phase for call in recorder.calls] == ["setup", "forward", "loss", "backward", "optimizer"]


def test_a_group_of_one_is_left_out() -> None:
    rows = table([Call("all_reduce", (3,), 10, "fp32", "forward"), Call("all_reduce", (2, 3), 10, "fp32", "forward")])
    assert rows["group_size"].to_list() == [2]


def test_groups_without_a_plan_are_described() -> None:
    assert described(Call("all_reduce", (0, 1, 2, 3), 1, "fp32", "forward")) == "ranks 0:4:1"
    assert described(Call("all_reduce", (0, 1), 1, "fp32", "forward", group="default_pg")) == "world"


@pytest.mark.parametrize(("rank", "world", "said"), [(8, 8, "0 to 7"), (-1, 8, "0 to 7"), (0, 0, "from 1"), (0, 2**40, "from 1")])
def test_no_such_world(rank: int, world: int, said: str) -> None:
    with pytest.raises(InputError, match=said), fake_world(rank, world):
        pass


def test_no_such_rank_of_a_plan() -> None:
    arch = llama(2)
    with pytest.raises(InputError, match="ranks 0 to 3"):
        recorded(arch, plan_of(arch, 4, {"dialect": "torchtitan"}), 4)


def test_one_rank_of_each_stage() -> None:
    assert default_ranks(plan_of(llama(4), 16, {"dialect": "torchtitan", "pp": 4})) == [0, 4, 8, 12]


def test_a_difference_comes_first() -> None:
    arch = llama(2)
    plan = plan_of(arch, 4, {"dialect": "torchtitan"})
    predicted = operations(arch, plan)
    calls = [Call("all_reduce", (0, 1, 2, 3), 1, "int64", "data"), Call("broadcast", (0, 1, 2, 3), 5, "fp32", "forward")]
    rows = compare(predicted, table(calls, plan, 0), plan, 0)
    assert not rows["equal"][0]
    assert rows.filter(rows["op"] == "broadcast")["predicted"].to_list() == [0]
    assert rows.filter(rows["phase"] == "data")["equal"].to_list() == [True]
