"""Fields: what a visitor may change. A wrong value stays in its field with the reason below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from tokenwire.web.view import View


def field(view: View, key: str, label: str, *, now: object = "", hint: str = "", width: int = 150) -> dmc.TextInput:
    """Return a line to type in. ``key`` is a part of the address, or ``set:plan.tp``; ``now`` is what holds without it."""
    return dmc.TextInput(
        id={"field": key}, label=label, value=view.state.value(key) or _text(now), description=hint or None, debounce=True, w=width,
        size="xs", autoComplete="off", inputWrapperOrder=["label", "input", "description", "error"],
    )  # fmt: skip


def area(view: View, key: str, label: str, *, placeholder: str = "") -> dmc.Textarea:
    """Return a field of several lines."""
    return dmc.Textarea(
        id={"field": key}, label=label, value=view.state.value(key), placeholder=placeholder, debounce=600, autosize=True,
        minRows=2, maxRows=6, size="sm",
    )  # fmt: skip


def choice(
    view: View, key: str, label: str, options: Sequence[str], *, now: object = "", width: int = 190, search: bool = False
) -> dmc.Select:
    """Return a list to choose from."""
    value = view.state.value(key) or _text(now)
    known = list(dict.fromkeys([*options, *([value] if value else [])]))
    return dmc.Select(
        id={"field": key}, label=label, value=value or None, data=known, w=width, size="xs", searchable=search, allowDeselect=False,
        checkIconPosition="right", comboboxProps={"withinPortal": True},
    )  # fmt: skip


def slider(view: View, key: str, label: str, low: float, high: float, step: float, now: float, marks: Sequence[tuple[float, str]]) -> Any:
    """Return a slider for a share, 0 to 1."""
    try:
        value = float(view.state.value(key) or now)
    except ValueError:
        value = now
    return html.Div([
        html.Label(f"{label}: {100 * value:.0f}\N{NO-BREAK SPACE}%", className="slider-label"),
        dmc.Slider(id={"slide": key, "part": "slider"}, value=value, min=low, max=high, step=step, updatemode="mouseup", size="sm", w=240, mb=18,
                   thumbLabel=label, marks=[{"value": at, "label": text} for at, text in marks]),
        html.Div(id={"slide": key, "part": "error"}, className="error"),
    ], className="slider")  # fmt: skip


def row(*fields: Any) -> html.Div:
    """Return fields side by side."""
    return html.Div(list(fields), className="fields")


def override(view: View, key: str, label: str, now: object, **options: Any) -> dmc.TextInput:
    """Return the field of one value of the journey, e.g. ``plan.tp``."""
    return field(view, f"set:{key}", label, now=now, **options)


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
