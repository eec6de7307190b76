"""What never changes once it is on a page, as text: a page of thousands of components is slow in the browser, one of a few is not.

Each component costs the browser some milliseconds. A part of a page without fields, charts or grids needs none: its markup is
written here, every text escaped, and ``explorer.js`` puts it in its place.
"""

from __future__ import annotations

from html import escape
from typing import Any

from dash import html
from dash.development.base_component import Component

FEW = 4
"""Components up to which a part is left as it is."""
_NAMES = {"className": "class", "tabIndex": "tabindex"}


def stilled(part: Any) -> Any:
    """Return a part of a page, with all below it that stays as it is turned into markup.

    >>> stilled(html.Ul([html.Li("<b>"), *map(html.Li, "cde")])).to_plotly_json()["props"]["data-html"]
    '<ul><li>&lt;b&gt;</li><li>c</li><li>d</li><li>e</li></ul>'
    """
    if isinstance(part, list):
        return [stilled(one) for one in part]
    if not isinstance(part, Component):
        return part
    count = _still(part)
    if count is not None:
        return part if count <= FEW else html.Article(className="still", role="none", **{"data-html": markup(part)})
    if getattr(part, "children", None) is not None:
        part.children = stilled(part.children)
    return part


def _still(part: Any) -> int | None:
    """Return of how many components a part is, or None where one of them is more than an element with text."""
    if part is None or isinstance(part, (str, int, float)):
        return 0
    if isinstance(part, (list, tuple)):
        counts = [_still(one) for one in part]
        return None if None in counts else sum(count for count in counts if count is not None)
    if not isinstance(part, Component) or part._namespace != html.Div._namespace or hasattr(part, "id"):
        return None
    below = _still(getattr(part, "children", None))
    return None if below is None else below + 1


def markup(part: Any) -> str:
    """Return the HTML of elements and texts.

    >>> markup(html.A(["to ", html.B("x")], href="/a?b=1&c", className="off", **{"aria-label": 'say "x"'}))
    '<a aria-label="say &quot;x&quot;" class="off" href="/a?b=1&amp;c">to <b>x</b></a>'
    """
    if part is None:
        return ""
    if isinstance(part, (list, tuple)):
        return "".join(map(markup, part))
    if not isinstance(part, Component):
        return escape(str(part))
    props = part.to_plotly_json()["props"]
    told = sorted(name for name, value in props.items() if name != "children" and value is not None and value is not False)
    said = "".join(f' {_NAMES.get(name, name)}="{escape(_written(props[name]))}"' for name in told)
    tag = part._type.lower()
    return f"<{tag}{said}>{markup(getattr(part, 'children', None))}</{tag}>"


def _written(value: Any) -> str:
    if value is True:
        return ""
    return "; ".join(f"{name}: {one}" for name, one in value.items()) if isinstance(value, dict) else str(value)
