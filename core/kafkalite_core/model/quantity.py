"""Kubernetes quantities: `10Gi`, `500M`, `1e9`, `1500m`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from kafkalite_core.model.errors import KafkaLiteError

_TEXT: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", start=1)}


class QuantityError(KafkaLiteError):
    """A text that is no quantity."""


def quantity(text: str) -> Fraction:
    """The exact value of a quantity. Raises `QuantityError`."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise QuantityError(f"{text!r:.40} is no quantity, such as 10Gi")
    sign, digits, suffix = found[1], Fraction(found[2]), found[3] or ""
    if suffix in _BINARY:
        digits *= 1 << _BINARY[suffix]
    elif suffix:
        power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        digits *= Fraction(10**power) if power >= 0 else Fraction(1, 10**-power)
    return -digits if sign == "-" else digits
