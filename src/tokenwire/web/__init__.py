"""To explore: the journey in a browser, a page a room in the order of the walk, linked by what is selected.

In: a journey file and overrides, given when it starts. Out: ``explorer``, a Dash application, and ``serve``, which shows it
on this machine. What a visitor sees is a function of the address alone (``state``): nothing is kept for a visitor but
bounded caches of journeys and of pages by their address. No address can name a file of the machine.
"""

from tokenwire.web.serving import explorer, serve

__all__ = ["explorer", "serve"]
