"""When it is said: compute, communication and dependencies on one clock, and the memory that they need.

Packages: ``memory`` (bytes by stage, the peak and its moment, what fits).
"""
