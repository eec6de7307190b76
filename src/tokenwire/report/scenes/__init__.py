"""The scenes of the walk, in order: each has facts (for programs) and a picture (for people) drawn from those facts.

In: a ``Walk`` (a journey, others beside it at larger scale, what to show, which token to follow). Out: JSON or a screen.
"""

from tokenwire.report.scenes.stage import SCENES, capture, chosen, facts, show
from tokenwire.report.scenes.walk import Walk

__all__ = ["SCENES", "Walk", "capture", "chosen", "facts", "show"]
