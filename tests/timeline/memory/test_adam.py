"""Master copy and moments in dtypes of their own, and on the host."""

from __future__ import annotations

import pytest

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.formats.runs.arguments import software
from tokenwire.plan import TrainingConfig
from tokenwire.timeline.memory import Software
from tokenwire.timeline.memory.adam import on_device, state_bytes


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


def test_the_command_line_says_so() -> None:
    found = software({"use-precision-aware-optimizer": True, "exp-avg-dtype": "bf16", "optimizer-cpu-offload": True})
    # All of it, where no fraction is said (megatron/training/arguments.py).
    assert found["optimizer_offload_fraction"] == 1.0
    assert Software(**found).exp_avg_dtype == "bf16"
