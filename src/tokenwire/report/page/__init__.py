"""The report: a whole journey as one HTML page that can be mailed, opened without a network, and printed.

In: a ``Walk`` (a journey, the verse on stage, the token that is followed). Out of ``page``: HTML with every room's tables as the
terminal has them and drawings as SVG (``drawings``), light or dark as the reader's system is. ``write_page`` writes it whole or
not at all.
"""

from tokenwire.report.page.page import check_page, page, write_page
from tokenwire.report.page.rooms import sections
from tokenwire.report.page.section import Drawn, Section

__all__ = ["Drawn", "Section", "check_page", "page", "sections", "write_page"]
