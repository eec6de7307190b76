"""Lets ``python -m tokenwire`` work."""

from tokenwire.cli import main

main()
