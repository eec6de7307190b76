"""The pipeline: the one room that knows all the others and strings them together.

In: a journey file (TOML), overrides (``plan.tp=4``), or nothing for the built-in walk. Out: a ``Journey``, whose
methods are the rooms in order and whose results are computed once and kept.
"""

from tokenwire.journey.config import JourneyConfig, read_config
from tokenwire.journey.journey import Journey
from tokenwire.journey.scales import SCALES, scale

__all__ = ["SCALES", "Journey", "JourneyConfig", "read_config", "scale"]
