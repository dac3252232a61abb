"""Fetch (key 1): for consumers up to the high watermark, for followers up to the log end.

Sessions (KIP-227) are granted to followers; clients are declined with session id 0, which each of them accepts.
"""

from kafkalite_broker.server.handlers.fetch.handler import FetchHandler

__all__ = ["FetchHandler"]
