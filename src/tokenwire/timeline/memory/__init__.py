"""Memory: bytes of every stage's rank, the peak and its moment, and what fits.

In: an ``Architecture``, a ``Plan`` and ``Software`` (the GPU, and options of the framework that no section of a journey has).
Out of ``memory``: a ``Memory``: parts by stage with their formulas (``table``, ``figures``), the bytes between steps and at
the peak as torch's allocator counts them. Out of ``fit``: whether it fits in the GPU, and the smallest change that makes it fit.
"""

from __future__ import annotations

from tokenwire.timeline.memory.fit import Fit, Verdict, fit
from tokenwire.timeline.memory.part import Moment
from tokenwire.timeline.memory.prediction import Memory, StageMemory, memory
from tokenwire.timeline.memory.software import Software, software_on

__all__ = ["Fit", "Memory", "Moment", "Software", "StageMemory", "Verdict", "fit", "memory", "software_on"]
