"""XML of others, read without being led anywhere: no document types, no entities, no depth or size without a limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from tokenwire.errors import InputError

MOST_DEPTH, MOST_ELEMENTS = 64, 4_000_000


@dataclass
class Element:
    """An element: its name without prefix, attributes, text and children."""

    name: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)
    line: int = 0


def read_xml(data: bytes, where: str) -> Element:
    """Return the root element. Raises ``InputError`` for what is not XML, declares entities, or is too deep or large.

    >>> read_xml(b"<a><b c='1'/></a>", "file").children[0].attributes
    {'c': '1'}
    """
    top = Element("", {})
    stack, many = [top], 0
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal many
        many += 1
        if len(stack) > MOST_DEPTH or many > MOST_ELEMENTS:
            rule = f"is nested deeper than {MOST_DEPTH}" if len(stack) > MOST_DEPTH else f"has more than {MOST_ELEMENTS:,} elements"
            raise InputError(where, rule=f"{rule} (line {parser.CurrentLineNumber:,})")
        one = Element(name.rpartition(":")[2], attributes, line=parser.CurrentLineNumber)
        stack[-1].children.append(one)
        stack.append(one)

    def end(_name: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        if len(stack[-1].text) < 4096:
            stack[-1].text += data

    def refused(*_: object) -> Any:
        raise InputError(where, rule="declares a document type or entities, which are not read", nearest="the file without <!DOCTYPE>")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refused
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(where, rule=f"is not XML (line {error.lineno:,}: {expat.ErrorString(error.code)})") from None
    except (ValueError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(where, rule=f"is not XML ({error})"[:200]) from None
    return top.children[0]
