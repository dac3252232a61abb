"""Kubernetes quantities: `10Gi`, `500M`, `1e9`, `1500m`.

What is compared here is exact, so a text of a few characters could mean a number of a billion digits. Digits and
exponents are bounded, as in the CRD; no size of a disk, of memory or of CPU is near the bounds.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from kafkalite_core.model.errors import KafkaLiteError

_TEXT: Final = re.compile(
    r"([+-]?)([0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", start=1)}


class QuantityError(KafkaLiteError):
    """A text that is no quantity, or one of more digits than are looked at."""


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
