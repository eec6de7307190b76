"""Megatron-Core's optimizer with Muon, on every rank or shared out tensor by tensor. Needs torch.

The update itself is that of a package for accelerators (emerging_optimizers); in its place steps SGD with momentum, which keeps as
much and, like Muon's default of each rank's own part (``muon_tp_mode`` blockwise), sends nothing.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch


def muon_optimizer(settings: Any, models: list[Any], *, shared: bool) -> Any:
    """Return the optimizer that Megatron-Core chains of Muon and Adam; ``shared``: each rank updates some of the tensors."""
    from megatron.core.optimizer import muon

    def update(groups: Any, **_: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=1e-4, momentum=0.9)

    with mock.patch.object(muon, "HAVE_EMERGING_OPTIMIZERS", True), mock.patch.object(muon, "TensorParallelMuon", update):
        return muon.get_megatron_muon_optimizer(
            settings, models, use_gloo_process_groups=False, layer_wise_distributed_optimizer=shared
        )
