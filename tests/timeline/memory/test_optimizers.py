"""State of optimizers: in dtypes of their own, on the host, and of whole tensors shared out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.formats.megatron_arguments.arguments import software
from tokenwire.model import preset
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Software, memory
from tokenwire.timeline.memory.adam import on_device, state_bytes
from tokenwire.timeline.memory.layer_wise import shared_out, state


@pytest.mark.parametrize(
    ("options", "precision", "size"),
    [
        ({}, "bf16", 12),
        ({}, "fp32", 8),
        # The 16 bits that bf16 weights have not, and two moments.
        ({"use_precision_aware_optimizer": True}, "bf16", 2 + 4 + 4),
        ({"use_precision_aware_optimizer": True}, "fp16", 4 + 4 + 4),
        ({"use_precision_aware_optimizer": True, "main_params_dtype": "fp16", "exp_avg_dtype": "fp8", "exp_avg_sq_dtype": "fp16"}, "bf16", 2 + 1 + 2),
        ({"use_precision_aware_optimizer": True, "store_param_remainders": False}, "bf16", 12),
    ],
)  # fmt: skip
def test_bytes_of_a_parameter(options: dict[str, object], precision: str, size: int) -> None:
    assert state_bytes(TrainingConfig(precision=precision), Software(**options)) == size


def test_a_part_on_the_host_does_not_stand_on_the_gpu() -> None:
    aware = {"use_precision_aware_optimizer": True}
    assert [on_device(80, Software(**aware, optimizer_offload_fraction=share)) for share in (0, 0.25, 1)] == [80, 60, 0]


@pytest.mark.parametrize("options", [{"optimizer_offload_fraction": 0.5}, {"exp_avg_dtype": "bf16"}, {"main_params_dtype": "fp16"}])
def test_who_has_another_optimizer_cannot_have_its_options(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} needs use_precision_aware_optimizer"):
        read_section(Software, options, where="--option")


@pytest.mark.parametrize(("options", "aware", "copies"), [({}, False, 1), ({"grad_reduce_in_fp32": True}, False, 0), ({}, True, 0)])
def test_gradients_in_16_bits_have_a_copy_in_fp32_until_the_next_step(options: dict[str, object], aware: bool, copies: int) -> None:
    # Golden run nemotron3_5_lightning, gradients in bf16: 4 bytes a parameter of the shard more than weights, gradients and state.
    arch = preset("gpt2", 50257)
    plan = resolve(read_plan({"use_distributed_optimizer": True, **options}), TrainingConfig(global_batch=8, micro_batch=1), arch, 8)
    parts = memory(arch, plan, Software(use_precision_aware_optimizer=aware)).stages[0].parts
    found = [part.size for part in parts if part.what.startswith("fp32 copy of gradients")]
    # 124,439,808 parameters, the table of 50,257 padded to 50,304 rows of 768
    assert found == [4 * (124_439_808 + 47 * 768) // 8] * copies


def test_the_command_line_says_so() -> None:
    found = software({"use-precision-aware-optimizer": True, "exp-avg-dtype": "bf16", "optimizer-cpu-offload": True})
    # All of it, where no fraction is said (megatron/training/arguments.py).
    assert found["optimizer_offload_fraction"] == 1.0
    assert Software(**found).exp_avg_dtype == "bf16"


def test_whole_tensors_are_dealt_to_and_fro() -> None:
    # Sorted 1, 2, 3, 4, 5: ranks 0, 1, 1, 0, 0; 8 bytes an element of a matrix, 12 of others.
    tensors = [(5, False), (1, True), (3, True), (2, True), (4, True)]
    assert shared_out(tensors, 2) == (8 * 1 + 8 * 4 + 12 * 5, 8 * 2 + 8 * 3)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.booleans())), st.integers(1, 64))
def test_nothing_is_dealt_twice(tensors: list[tuple[int, bool]], ranks: int) -> None:
    assert sum(shared_out(tensors, ranks)) == sum(state(*tensor) for tensor in tensors)


def test_the_fullest_rank_holds_no_less_than_the_last() -> None:
    arch = preset("gpt2", 50257)
    plan = resolve(read_plan({}), TrainingConfig(), arch, 8)
    sizes = [memory(arch, plan, Software(optimizer="muon", layer_wise_optimizer=whose)).stages[0].of("optimizer", "between")
             for whose in ("last", "fullest", "none")]  # fmt: skip
    assert sizes == sorted(sizes)
    assert sizes[1] < sizes[2]
