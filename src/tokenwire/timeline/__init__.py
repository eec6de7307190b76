"""Timeline: when it is said. One training step in time, and in memory (``memory``).

In: an ``Architecture``, a checked ``Plan``, the step table, the facts of a cluster. Out of ``step_time``: a ``StepTime``: seconds of
the step, of computing, of exposed communication and of the bubble, stage by stage, with derivations. ``operators`` lists what a layer
computes, ``efficiency`` says which share of the peak a shape reaches (``catalog/``: measured tables by machine, a generic curve
elsewhere, which it says), ``communication`` times each row of the step, ``overlap`` what is hidden by which framework's flag,
``simulation`` runs the pipeline (``order``: as a graph, ``steady``: not all of it), ``critical`` finds what decides its end. ``trace``
writes a step for Perfetto.
"""

from tokenwire.timeline.accelerator import Accelerator, accelerator, accelerator_of
from tokenwire.timeline.critical import Path, critical_path
from tokenwire.timeline.stage_time import StageTime
from tokenwire.timeline.step_time import StepTime, step_time

__all__ = ["Accelerator", "Path", "StageTime", "StepTime", "accelerator", "accelerator_of", "critical_path", "step_time"]
