"""Dropless routing of tokens to experts: a distribution, not a number.

In: a ``Router`` (k of E experts, at most M of G groups) over ranks on nodes (``Spread``), tokens a rank. Out: ``laws``,
expectation, variance and bounds of the rows by rank and by pair, and which copies of a token cross the network or NVLink;
``draw``, one seeded draw with its imbalance; ``of_plan``, both for the experts of a plan.
"""

from tokenwire.step.routing.draw import Draw, draw
from tokenwire.step.routing.laws import Copies, Router, Spread, Volume, of_pair, of_rank
from tokenwire.step.routing.planned import Routed, of_plan

__all__ = ["Copies", "Draw", "Routed", "Router", "Spread", "Volume", "draw", "of_pair", "of_plan", "of_rank"]
