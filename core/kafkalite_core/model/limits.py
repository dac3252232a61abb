"""Every bound of the system in one place. A bound that a user may move is a configuration key instead (`config.py`)."""

from typing import Final

PARTITIONS_PER_TOPIC_MAX: Final = 256
"""A custom resource with more entries makes one compare-and-swap slower than 10 ms (etcd's object limit is 1.5 MiB)."""

PARTITION_DIGITS_MAX: Final = 9
"""Digits of a partition number in a key, as far as it is read; that there is such a partition is another question."""

REPLICAS_PER_PARTITION_MAX: Final = 16
TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's own limit: the directory name `<topic>-<partition>` has to fit a file name."""

SOCKET_REQUEST_BYTES_MAX: Final = 104_857_600
"""Default of `socket.request.max.bytes` (100 MiB)."""

PRODUCER_BATCHES_KEPT: Final = 5
"""Batches per producer id whose sequence numbers are remembered (Kafka: NUM_BATCHES_TO_RETAIN)."""

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""Producer ids drawn from the cluster's counter by one compare-and-swap."""

STRAYS_LISTED_MAX: Final = 1024
"""Strays that a broker lists in its status; the newest ones when there are more."""

EPOCHS_AHEAD: Final = 1_000
"""An adoption (S10) or a recovery of the store (S11) goes on so far above all epochs that are known. Who was not asked,
because it was away or was about to remove its log, may know of later ones, and would call the store one of the past."""

SENTENCE_LENGTH_MAX: Final = 1024
"""Characters of a sentence in a status; what is longer is cut, and told in full by the log."""

HOLDINGS_LISTED_MAX: Final = 2048
"""Holdings that a broker lists in its status; when there are more, the rest follows as the first are settled (S11).

With the strays beside them the object stays below what etcd takes in one request (1.5 MiB), as a rule.
"""

RECORD_BATCH_OVERHEAD_BYTES: Final = 61
OFFSET_MAX: Final = 2**63 - 1
EPOCH_UNKNOWN: Final = -1
NO_LEADER: Final = -1
NO_PRODUCER_ID: Final = -1

NOTICED_MAX: Final = 500
"""So many topics a broker names on its Lease (`membership/notice.py`), those that came first: all annotations of an
object have 256 KiB. A longer list says nothing of others."""
