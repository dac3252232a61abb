"""The command without a broker: what is missing is said, and the manifest names what the image has."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml

from kafkalite_spark import __main__ as command
from kafkalite_spark import jobs, session

ROOT = Path(__file__).resolve().parents[2]


def test_missing_jars_are_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KAFKALITE_SPARK_JARS", str(tmp_path))
    assert command.main(["flights"]) == 2
    assert "run spark_app/fetch_jars.sh" in capsys.readouterr().err


def test_jars_among_sparks_own_need_no_directory(monkeypatch, tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql-kafka-0-10_2.13-4.0.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert session.jar_directory() is None
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("KAFKALITE_SPARK_JARS", str(tmp_path / "jars"))
    assert session.jar_directory() == tmp_path / "jars"


def test_a_job_is_needed():
    with pytest.raises(SystemExit):
        command.main([])


def test_a_topic_that_nobody_knows_is_no_topic_that_is_whole():
    spark = MagicMock()
    jvm = spark._jvm
    jvm.org.apache.kafka.clients.consumer.KafkaConsumer.return_value.partitionsFor.return_value = []
    jvm.java.util.ArrayList.return_value.isEmpty.return_value = True
    with pytest.raises(jobs.NoTopicError, match="absent does not exist on there:9092"):
        jobs.topic_bounds(spark, "there:9092", "absent")


def test_the_manifest_runs_what_the_image_has():
    manifest = yaml.safe_load((ROOT / "spark_app" / "sparkapplication.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    spec = manifest["spec"]
    assert {"type", "mode", "image", "mainApplicationFile", "sparkVersion", "driver", "executor"} <= set(spec)
    assert spec["mainApplicationFile"].endswith("/opt/kafkalite/kafkalite_spark/__main__.py")
    assert (
        "COPY spark_app/kafkalite_spark /opt/kafkalite/kafkalite_spark" in (ROOT / "spark_app/Dockerfile").read_text()
    )
    assert (ROOT / "spark_app" / "kafkalite_spark" / "__main__.py").exists()
