"""In which phase of a step a call is made, read off what torch is doing at that moment.

Backward is known from autograd, the optimizer from its hooks, forward from module hooks; the reduction of gradients by
FSDP from the function that asks. What is called before the first forward is set-up, what comes between forward and
backward is the loss, what comes after backward (clipping, metrics) belongs to the optimizer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Functions of frameworks that say what a call is for, whatever else is running: (part of the file's name, function).
_GRADIENTS = {
    ("_fully_shard", "foreach_reduce"), ("pipelining/stage", "perform_reduce_grad"), ("zero/stage_1_and_2", "average_tensor"),
    ("zero/stage_1_and_2", "buffered_reduce_fallback"), ("zero/stage3", "__avg_scatter_grads"),
    ("zero/stage3", "__avg_scatter_contiguous_grads"), ("deepspeed/runtime/engine", "buffered_allreduce_fallback"),
}  # fmt: skip
_OPTIMIZER = {("clip_grad", "get_total_norm"), ("clip_grad", "clip_grad_norm_"), ("clip_grad", "_get_total_norm")}
_PLUMBING = ("/torch/", "/tokenwire/measure/dryrun/", "<")


class Phase:
    """Follows a step: hooks on modules, optimizers and what the caller says with ``during``."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._inside = 0
        self._optimizing = 0
        self._after = "setup"
        # What lies between forwards and backwards, where a schedule runs them (a pipeline gathers parameters there).
        self.between = ""
        # Tensors whose phase is known beforehand, by identity; kept, so that no other takes that identity.
        self._of_tensor: dict[int, tuple[str, Any]] = {}

    def belongs(self, tensor: Any, phase: str) -> None:
        """Say that the next send or receive of this very tensor is of ``phase``."""
        self._of_tensor[id(tensor)] = (phase, tensor)

    def of(self, args: tuple[Any, ...]) -> str:
        """Return the phase said of the first tensor among ``args``, or an empty string."""
        for arg in args:
            first = arg[0] if isinstance(arg, (list, tuple)) and arg else arg
            if id(first) in self._of_tensor:
                return self._of_tensor[id(first)][0]
        return ""

    def now(self) -> str:
        """Return the phase of a call made at this moment."""
        if self._said:
            return self._said[-1]
        import torch

        told = _told_by(sys._getframe(1))
        if told:
            return told
        if self._optimizing:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            self._after = "optimizer"
            return "backward"
        if self._inside:
            return "forward"
        return self.between or self._after

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Say that what runs inside the block is of phase ``name``."""
        self._said.append(name)
        try:
            yield
        finally:
            self._said.pop()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every module's forward and every optimizer's step inside the block."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        def entered(*_: Any) -> None:
            self._inside += 1

        def left(*_: Any) -> None:
            self._inside -= 1
            self._after = "loss"

        def stepping(*_: Any) -> None:
            self._optimizing += 1

        def stepped(*_: Any) -> None:
            self._optimizing -= 1
            self._after = "optimizer"

        hooks = [
            register_module_forward_pre_hook(entered), register_module_forward_hook(left, always_call=True),
            register_optimizer_step_pre_hook(stepping), register_optimizer_step_post_hook(stepped),
        ]  # fmt: skip
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _told_by(frame: FrameType | None) -> str:
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        for phase, marks in (("gradients", _GRADIENTS), ("optimizer", _OPTIMIZER)):
            if any(name == function and part in file for part, function in marks):
                return phase
        frame = frame.f_back
    return ""


def call_site(frame: FrameType | None) -> str:
    """Return ``file:function`` of the innermost caller outside torch, else of the innermost one in torch's Python."""
    first = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if "/tokenwire/measure/dryrun/" not in file:
            here = f"{file.rsplit('/', 1)[-1]}:{frame.f_code.co_name}"
            if not any(part in file for part in _PLUMBING):
                return here
            first = first or here
        frame = frame.f_back
    return first
