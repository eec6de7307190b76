"""Arguments of NVIDIA/Megatron-LM as the sections of a journey file.

In: the arguments of a run by name, without dashes (``{"num-layers": 12, "bf16": True}``), and its number of GPUs. Out: ``sections``:
the sections of a journey file and the options of the framework that shape memory; ``reasons``: why a run cannot be represented.
"""

from __future__ import annotations

from tokenwire.formats.megatron_arguments.arguments import sections
from tokenwire.formats.megatron_arguments.command_line import Arguments, whole
from tokenwire.formats.megatron_arguments.unrepresented import Sections, Unrepresented, reasons

__all__ = ["Arguments", "Sections", "Unrepresented", "reasons", "sections", "whole"]
