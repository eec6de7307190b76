"""Hosts on one machine: a network namespace a rank, joined by a bridge; without root, loopback with an address a rank.

In: how many, MTU, offloads, rate, delay. Out: a ``Network``, whose ``hosts`` say how to start something there. Everything is
taken down when the block ends, however it ends; what a killed process left is taken down by the next one.
"""

from tokenwire.measure.hosts.config import Host, Network, NetworkConfig
from tokenwire.measure.hosts.folder import own_folder
from tokenwire.measure.hosts.network import network
from tokenwire.measure.hosts.processes import child, stop

__all__ = ["Host", "Network", "NetworkConfig", "child", "network", "own_folder", "stop"]
