"""Bytes to characters: UTF-8 unless told otherwise, with or without a byte order mark, any line ends."""

from __future__ import annotations

import codecs

from tokenwire.errors import InputError, closest

_KNOWN = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "iso-8859-15", "mac-roman", "cp850")


def decoded(data: bytes, encoding: str, *, what: str) -> str:
    r"""Return the characters of ``data``, without a byte order mark, with ``\n`` line ends.

    Raises ``InputError`` naming the byte, its offset and ``--encoding``.

    >>> decoded(b"\xef\xbb\xbfselva\r\noscura\r", "utf-8", what="text")
    'selva\noscura\n'
    >>> decoded("perché".encode("latin-1"), "utf-8", what="text 'f'")
    Traceback (most recent call last):
        ...
    tokenwire.errors.InputError: text 'f': byte 0xe9 at offset 5 is not valid utf-8; nearest that works: --encoding latin-1
    """
    try:
        codec = codecs.lookup(encoding)
        text = data.decode(encoding) if codec._is_text_encoding else None
    except LookupError:
        raise _unknown(encoding) from None
    except UnicodeDecodeError as error:
        byte = f"0x{data[error.start]:02x}" if error.start < len(data) else "end of file"
        raise InputError(
            what, rule=f"byte {byte} at offset {error.start:,} is not valid {encoding}",
            nearest=f"--encoding {_guess(data, encoding)}",
        ) from None  # fmt: skip
    except (UnicodeError, ValueError) as error:
        raise InputError(what, rule=f"is not {encoding} ({error})", nearest="--encoding utf-8") from None
    if text is None:
        raise _unknown(encoding)
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _unknown(encoding: str) -> InputError:
    return InputError(
        f"--encoding {encoding}", rule=f"is no text encoding; known are {', '.join(_KNOWN)} and Python's others",
        nearest=closest(encoding.lower(), _KNOWN) or "utf-8",
    )  # fmt: skip


def _guess(data: bytes, tried: str) -> str:
    # A byte order mark says what it is; otherwise one byte a character always decodes.
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if codecs.lookup(tried).name != "utf-8":
        return "utf-8"
    # cp1252 puts typographic quotes where latin-1 has control characters.
    return "cp1252" if any(0x80 <= byte < 0xA0 for byte in data[:1_000_000]) else "latin-1"
