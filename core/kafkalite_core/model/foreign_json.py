"""JSON of others: whatever it is, it is read or it is an error of one kind."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """As `json.loads`, and raises ValueError, too, where brackets are nested deeper than Python reads them.

    That is a RecursionError in itself: a thousand `[` would pass by everybody who expects bad text.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
