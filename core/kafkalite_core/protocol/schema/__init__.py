"""What the messages of each API look like; `APIS` lists every API that KafkaLite serves."""

from kafkalite_core.protocol.schema.api_versions import API_VERSIONS
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
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
)
