"""Golden values of NVIDIA/Megatron-LM, tests/functional_tests, with their arguments (JSON lines), as runs.

They are bytes that torch's allocator counts on the last rank (megatron/training/training.py, training_log; its writer is that of the
last rank) and seconds per iteration.
"""

from __future__ import annotations

from validation.golden.rows import golden_run, golden_runs, kind

__all__ = ["golden_run", "golden_runs", "kind"]
