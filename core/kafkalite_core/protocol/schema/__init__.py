"""What the messages of each API look like; `APIS` lists every API that has a codec."""

from kafkalite_core.protocol.schema.api_versions import API_VERSIONS
from kafkalite_core.protocol.schema.create_topics import CREATE_TOPICS
from kafkalite_core.protocol.schema.delete_topics import DELETE_TOPICS
from kafkalite_core.protocol.schema.describe_cluster import DESCRIBE_CLUSTER
from kafkalite_core.protocol.schema.describe_configs import DESCRIBE_CONFIGS
from kafkalite_core.protocol.schema.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from kafkalite_core.protocol.schema.fetch import FETCH
from kafkalite_core.protocol.schema.find_coordinator import FIND_COORDINATOR
from kafkalite_core.protocol.schema.init_producer_id import INIT_PRODUCER_ID
from kafkalite_core.protocol.schema.list_offsets import LIST_OFFSETS
from kafkalite_core.protocol.schema.metadata import METADATA
from kafkalite_core.protocol.schema.notation import Api
from kafkalite_core.protocol.schema.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from kafkalite_core.protocol.schema.produce import PRODUCE

APIS: tuple[Api, ...] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FIND_COORDINATOR,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
)
