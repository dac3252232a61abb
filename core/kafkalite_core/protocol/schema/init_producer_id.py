"""InitProducerId (key 22)."""

from kafkalite_core.protocol.schema.notation import api, field, struct

INIT_PRODUCER_ID = api(
    22,
    "InitProducerId",
    "init_producer_id",
    "0-5",
    flexible=2,
    request=struct(
        "InitProducerIdRequest",
        field("transactional_id", "string", nullable="0+"),
        field("transaction_timeout_ms", "int32"),
        field("producer_id", "int64", "3+", default=-1),
        field("producer_epoch", "int16", "3+", default=-1),
    ),
    response=struct(
        "InitProducerIdResponse",
        field("throttle_time_ms", "int32"),
        field("error_code", "int16"),
        field("producer_id", "int64", default=-1),
        field("producer_epoch", "int16"),
    ),
)
