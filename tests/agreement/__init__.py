"""Random agreement: plans drawn at random over a framework's options, each dry-run by the framework and compared call by call.

    python -m tests.agreement megatron --seed 1 --count 1000 --processes 2

One module a framework: ``draw(random) -> document`` (sections of a journey file), and ``NEEDS``, the modules to import once
before plans are run. ``running`` runs them, ``shrinking`` makes what differs or fails smaller.
"""
