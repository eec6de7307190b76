"""Measure: is it true. What real frameworks really send, recorded.

In: an ``Architecture`` and a checked ``Plan``, or a training function of the user's own. Out: tables with the columns of
the step table, so that comparing prediction and recording is a join. ``dryrun/`` runs the real framework in one process that
takes the place of one rank in a world of any size.
"""
