"""One line when something begins to go wrong and one when it is well again, however often it is tried in between."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    import structlog


REMEMBERED_MAX = 4096
"""Things that go wrong at once; what is forgotten is told again."""


class Complaints:
    """Remembers what was said about each thing that goes wrong.

    The text of an error may differ with every attempt (a port, a time); its type and its HTTP status tell whether it
    is another trouble. What was said already goes to the level `debug`.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._said: OrderedDict[Hashable, set[tuple[str, int]]] = OrderedDict()

    def wrong(self, key: Hashable, sentence: str, error: Exception, /, **fields: Any) -> None:
        """`key` went wrong (again)."""
        kind = (type(error).__name__, int(getattr(error, "status", 0)))
        said = self._said.setdefault(key, set())
        while len(self._said) > REMEMBERED_MAX:
            self._said.popitem(last=False)
        log = self._log.debug if kind in said else self._log.warning
        log(sentence, **fields, error=str(error))
        said.add(kind)

    def well(self, key: Hashable, sentence: str = "", /, **fields: Any) -> None:
        """`key` went well; says `sentence` when it had gone wrong before."""
        if self._said.pop(key, None) is not None and sentence:
            self._log.info(sentence, **fields)
