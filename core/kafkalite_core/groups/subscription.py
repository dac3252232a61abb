"""The topics in a consumer's subscription: the one thing that a coordinator reads in the members' own metadata."""

from __future__ import annotations

from struct import Struct, error

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a `ConsumerProtocolSubscription`, or None if these bytes are not one.

    Every version begins with the layout of version 0 (version, topics, user data), so that later ones can be read too.
    """
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            return None
        topics = set()
        at = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                return None
            topics.add(metadata[at : at + length].decode())
            at += length
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)
