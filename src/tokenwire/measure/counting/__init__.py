"""Counting what really crossed: by socket (TCP_INFO), by interface, by capture.

In: the marks that each rank took, the capture of its host. Out: bytes and packets by pair of ranks, three ways that must agree.
"""
