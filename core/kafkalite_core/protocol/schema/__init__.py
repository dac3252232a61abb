"""What the messages of each API look like; `APIS` lists every API that has a codec."""

from kafkalite_core.protocol.schema.alter_configs import ALTER_CONFIGS
from kafkalite_core.protocol.schema.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from kafkalite_core.protocol.schema.api_versions import API_VERSIONS
from kafkalite_core.protocol.schema.create_partitions import CREATE_PARTITIONS
from kafkalite_core.protocol.schema.create_topics import CREATE_TOPICS
from kafkalite_core.protocol.schema.delete_groups import DELETE_GROUPS
from kafkalite_core.protocol.schema.delete_records import DELETE_RECORDS
from kafkalite_core.protocol.schema.delete_topics import DELETE_TOPICS
from kafkalite_core.protocol.schema.describe_cluster import DESCRIBE_CLUSTER
from kafkalite_core.protocol.schema.describe_configs import DESCRIBE_CONFIGS
from kafkalite_core.protocol.schema.describe_groups import DESCRIBE_GROUPS
from kafkalite_core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS
from kafkalite_core.protocol.schema.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from kafkalite_core.protocol.schema.elect_leaders import ELECT_LEADERS
from kafkalite_core.protocol.schema.fetch import FETCH
from kafkalite_core.protocol.schema.find_coordinator import FIND_COORDINATOR
from kafkalite_core.protocol.schema.heartbeat import HEARTBEAT
from kafkalite_core.protocol.schema.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kafkalite_core.protocol.schema.init_producer_id import INIT_PRODUCER_ID
from kafkalite_core.protocol.schema.join_group import JOIN_GROUP
from kafkalite_core.protocol.schema.leave_group import LEAVE_GROUP
from kafkalite_core.protocol.schema.list_groups import LIST_GROUPS
from kafkalite_core.protocol.schema.list_offsets import LIST_OFFSETS
from kafkalite_core.protocol.schema.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from kafkalite_core.protocol.schema.metadata import METADATA
from kafkalite_core.protocol.schema.notation import Api
from kafkalite_core.protocol.schema.offset_commit import OFFSET_COMMIT
from kafkalite_core.protocol.schema.offset_delete import OFFSET_DELETE
from kafkalite_core.protocol.schema.offset_fetch import OFFSET_FETCH
from kafkalite_core.protocol.schema.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from kafkalite_core.protocol.schema.produce import PRODUCE
from kafkalite_core.protocol.schema.sync_group import SYNC_GROUP

APIS: tuple[Api, ...] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    DESCRIBE_LOG_DIRS,
    CREATE_PARTITIONS,
    DELETE_GROUPS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    OFFSET_DELETE,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
)
