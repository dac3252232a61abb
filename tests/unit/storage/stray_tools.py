"""A log that is set aside, for the tests of adoption and of removal."""

from kafkalite_broker.log.strays import StrayRules
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import TopicRef

REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")
OTHER = TopicRef("ns", "orders", "uid-2", REF.topic_id[:-1] + "2", "orders")
CONFIG = resolve_topic_config({"segment.bytes": "1024", "file.delete.delay.ms": "0"})
COMPACTED = resolve_topic_config({"segment.bytes": "1024", "cleanup.policy": "compact"})
AT_ONCE = {"retention_ms": 0, "deleted_retention_ms": 0}
NEVER = {"retention_ms": 10**9, "deleted_retention_ms": 10**9}


def rules(*, told_ms=float("inf"), claimed=(), looked_ms=float("inf"), **retention):
    """`StrayRules` for strays that are removed at once, unless it is said when; `claimed`: partition numbers."""
    return StrayRules(
        **(AT_ONCE | retention),
        told_ms=lambda _metadata: told_ms,
        claimed=lambda metadata: metadata.partition in claimed,
        looked_ms=looked_ms,
    )


def a_log(one, tools, *, config=CONFIG):
    """Of twelve records, of which three are deleted."""
    log, _ = one.obtain(REF, 0, config)
    tools.fill(log, 12)
    tools.flush(log)
    log.advance_start(3)
    return log
