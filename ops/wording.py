"""How a failure reads on one line."""

from __future__ import annotations

from shared.errors import SluiceError


def said(error: SluiceError) -> str:
    """The error's sentence, with its detail in brackets where it has one that the sentence does not hold."""
    text = str(error)
    sentence = text.removesuffix(error.detail).strip()
    return f"{sentence} ({error.detail})" if error.detail and sentence else text
