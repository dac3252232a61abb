"""What the operator exports."""

from dataclasses import replace

from kafkalite_operator.metrics import OperatorMetrics
from tests.unit.controller.builders import entry, make_broker, snapshot, three, topic_view


def test_who_stands_down_reports_nothing_of_what_it_saw():
    metrics = OperatorMetrics()
    dead = make_broker(2, fenced=12)
    seen = snapshot(
        topic_view(partitions={0: entry(), 1: replace(entry(leader=1), leader=-1)}), brokers=three() | {2: dead}
    )
    metrics.observe([seen], active=True)
    names = [
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "kafka_controller_kafkacontroller_globaltopiccount",
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "kafka_controller_kafkacontroller_activebrokercount",
        "kafka_controller_kafkacontroller_fencedbrokercount",
    ]
    assert [metrics.registry.get_sample_value(name) for name in names] == [1, 1, 1, 1, 2, 2, 1]
    metrics.last_success.set(7.0)
    metrics.stand_down()
    assert [metrics.registry.get_sample_value(name) for name in names] == [0] * len(names)
    last = "kafkalite_operator_reconcile_last_success_timestamp_seconds"
    assert metrics.registry.get_sample_value(last) == 7.0, "that stays true"


def test_memory_and_processor_time_of_the_operator_are_seen():
    registry = OperatorMetrics().registry
    assert registry.get_sample_value("process_resident_memory_bytes") > 1e6
    assert registry.get_sample_value("process_cpu_seconds_total") > 0
