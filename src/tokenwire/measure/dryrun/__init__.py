"""Dry runs: the real framework in one process that takes the place of one rank; see ``record`` for how.

``compare(arch, plan, rank)`` puts the recording beside the prediction; ``run_function`` records a function of the user's
own. A framework's module offers ``record(arch, plan, rank) -> table`` and is imported when its dialect is asked for.
"""
