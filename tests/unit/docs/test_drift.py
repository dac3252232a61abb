"""The tables of the documentation say what the code does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from kafkalite_broker.server.handlers import handlers
from kafkalite_broker.telemetry import BrokerTelemetry
from kafkalite_core.model.config import BROKER_KEYS, DYNAMIC_BROKER_KEYS, TOPIC_KEYS, ConfigKey
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.topic import FLUSH_DONE, FLUSH_RELAXED, FLUSH_TIGHTENING
from kafkalite_core.protocol.apis import API
from kafkalite_core.resources import naming
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_runtime.home import Ports

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_EFFECT = "*accepted, without effect in this version*"
SYNONYMS = {key.synonym for key in TOPIC_KEYS.values()}


def text(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(document: str, header: str) -> list[list[str]]:
    """Cells of the one table whose header line begins with `header`."""
    lines = document.splitlines()
    [start] = [number for number, line in enumerate(lines) if line.startswith(f"| {header} |")]
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


def name_of(cell: str) -> str:
    match = re.fullmatch(r"`([^`]+)`", cell)
    assert match, f"{cell!r} is not one name in backquotes"
    return match[1]


def sources(*folders: str) -> str:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert files
    declarations = {"config.py", "config_docs.py"}
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.name not in declarations)


# --- configuration.md ------------------------------------------------------------------------------------------------


def topic_rows() -> list[list[str]]:
    return rows(text("configuration.md"), "key | default | allowed | broker key | remarks")


def broker_rows() -> list[list[str]]:
    return rows(text("configuration.md"), "key | default | allowed | remarks")


def test_every_topic_key_is_documented_with_its_default_and_its_broker_key() -> None:
    documented = {name_of(row[0]): (name_of(row[1]), name_of(row[3])) for row in topic_rows()}
    assert documented == {name: (key.default or "(empty)", key.synonym) for name, key in TOPIC_KEYS.items()}


def test_every_broker_key_is_documented_with_its_default() -> None:
    documented = {name_of(row[0]): name_of(row[1]) for row in broker_rows()}
    assert documented == {name: key.default for name, key in BROKER_KEYS.items() if name not in SYNONYMS}


def allows(key: ConfigKey, value: str) -> bool:
    try:
        key.parse(key.name, value)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("row", [*topic_rows(), *broker_rows()], ids=lambda row: row[0])
def test_allowed_values_are_those_that_the_parser_takes(row: list[str]) -> None:
    key = {**BROKER_KEYS, **TOPIC_KEYS}[name_of(row[0])]
    allowed = row[2]
    if match := re.fullmatch(r"(-?\d+) (?:or more|to (-?\d+))", allowed):
        low = int(match[1])
        assert allows(key, str(low))
        assert not allows(key, str(low - 1))
        if match[2] is not None:
            assert allows(key, match[2])
            assert not allows(key, str(int(match[2]) + 1))
        else:
            assert allows(key, str(2**31 - 1))
    elif allowed == "any text":
        assert allows(key, "whatever, 1")
    else:
        words = re.findall(r"`([^`]+)`", allowed)
        assert words
        assert all(allows(key, word) for word in words)
        assert not allows(key, "whatever")


def test_where_or_more_ends_is_said_of_the_keys_that_end_earlier() -> None:
    keys = {**BROKER_KEYS, **TOPIC_KEYS}
    open_ended = [name_of(row[0]) for row in (*topic_rows(), *broker_rows()) if row[2].endswith(" or more")]
    assert not any(allows(keys[name], str(2**63)) for name in open_ended)
    ends_early = {name for name in open_ended if not allows(keys[name], str(2**63 - 1))}
    assert not any(allows(keys[name], str(2**31)) for name in ends_early)
    [paragraph] = [each for each in text("configuration.md").split("\n\n") if each.startswith('"or more" ends at')]
    assert set(re.findall(r"`([^`]+)`", paragraph)) == ends_early


def test_keys_marked_as_without_effect_are_those_that_no_code_reads() -> None:
    code = sources("core", "broker_image", "operator")
    topic_marks = {name_of(row[0]) for row in topic_rows() if row[4] == WITHOUT_EFFECT}
    assert topic_marks == {
        name for name in TOPIC_KEYS if not re.search(rf"\.{re.escape(name.replace('.', '_'))}\b", code)
    }
    broker_marks = {name_of(row[0]) for row in broker_rows() if row[3] == WITHOUT_EFFECT}
    assert broker_marks == {name for name in BROKER_KEYS if name not in SYNONYMS and f'"{name}"' not in code}


def test_broker_keys_that_need_no_restart_are_those_that_the_text_names() -> None:
    document = text("configuration.md")
    sentence = re.search(r"^These come into force at once,.*?\. Kafka's clients", document, re.DOTALL | re.MULTILINE)
    assert sentence
    names = re.findall(r"`([a-z.]+)`", sentence[0])
    own = BROKER_KEYS.keys() - SYNONYMS
    found = {key for key in own for name in names if key == name or (name.endswith(".") and key.startswith(name))}
    assert all(any(key == name or key.startswith(name) for key in own) for name in names)
    assert found == DYNAMIC_BROKER_KEYS - SYNONYMS


def leaves(schema: dict, path: str) -> dict[str, dict]:
    """Paths of the fields that hold no other fields, with their schemas."""
    if schema.get("type") == "array" and "properties" in schema.get("items", {}):
        return leaves(schema["items"], path + "[]")
    if "properties" in schema and path != "spec.template.pod":
        found: dict[str, dict] = {}
        for name, child in schema["properties"].items():
            found |= leaves(child, f"{path}.{name}")
        return found
    return {path: schema}


def spec_of(plural: str) -> dict:
    document = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text(encoding="utf-8"))
    [version] = document["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


@pytest.mark.parametrize(
    ("kind", "plural", "mentioned_in_prose"),
    [
        ("KafkaLiteTopic", "kafkalitetopics", set()),
        ("KafkaLiteCluster", "kafkaliteclusters", set()),
        ("KafkaLiteBroker", "kafkalitebrokers", {"spec.clusterRef.name", "spec.brokerId"}),
    ],
)
def test_every_field_of_a_spec_is_documented_with_its_default(
    kind: str, plural: str, mentioned_in_prose: set[str]
) -> None:
    section = re.search(rf"^## {kind} .*?(?=^## |\Z)", text("configuration.md"), re.DOTALL | re.MULTILINE)
    assert section
    table = rows(section[0], "field | default | meaning")
    actual = leaves(spec_of(plural), "spec")
    assert {name_of(row[0]) for row in table} == set(actual) - mentioned_in_prose
    assert all(f"`{name}`" in section[0] for name in mentioned_in_prose)
    for row in table:
        default = actual[name_of(row[0])].get("default")
        if default is not None:
            assert name_of(row[1]) == (str(default).lower() if isinstance(default, bool) else str(default)), row
        else:
            assert not re.fullmatch(r"`[^.]*`", row[1]), f"the schema has no default for {row}"
        low, high = (actual[name_of(row[0])].get(bound) for bound in ("minimum", "maximum"))
        if None not in {low, high} and high != 65535:  # that of ports goes without saying
            assert f"{low} to {high}" in row[2], row
        for most in re.findall(r"keys, at most (\d+)", row[2]):
            assert int(most) == actual[name_of(row[0])]["maxProperties"], row


def test_annotations_and_labels_that_kafkalite_sets_are_documented() -> None:
    names = {value for name, value in vars(naming).items() if re.match("(ANNOTATION|LABEL)_", name)}
    assert naming.ANNOTATION_REVISION in names
    document = text("configuration.md")
    assert {name for name in names if not re.search(rf"`{re.escape(name)}[:`]", document)} == set()


def test_every_annotation_that_users_set_is_documented() -> None:
    documented = {name_of(row[0]).split(":")[0] for row in rows(text("configuration.md"), "annotation | on | meaning")}
    assert documented == {
        naming.ANNOTATION_PAUSED,
        naming.ANNOTATION_REPLACE,
        naming.ANNOTATION_ADOPT,
        naming.ANNOTATION_ELECT_PREFERRED,
        naming.ANNOTATION_ELECT_UNCLEAN,
        naming.ANNOTATION_RECOVER_STORE,
    }


def test_every_environment_variable_is_documented() -> None:
    documented = {name_of(row[0]) for row in rows(text("configuration.md"), "variable | of | meaning")}
    # Set by the operator in the pods that it makes, and by the kubelet for itself: nobody else sets them.
    internal = {"KAFKALITE_CLUSTER", "KAFKALITE_CONFIG", "KAFKALITE_DATA_DIR", "KAFKALITE_TERMINATION_LOG"}
    internal |= {"KAFKALITE_LOCAL_POD", "KAFKALITE_RACK", "KAFKALITE_RACK_DIR"}
    read = set(
        re.findall(r'"(KAFKALITE_[A-Z_]+)"', sources("core", "runtime", "broker_image", "operator", "cli", "local"))
    )
    assert documented - {"KUBECONFIG"} == read - internal


# --- protocol.md -----------------------------------------------------------------------------------------------------


class Anything:
    """Stands for the services of a broker, which making its handlers does not use."""

    def __getattr__(self, name: str) -> Anything:
        return self


def test_the_table_of_apis_is_what_the_broker_serves() -> None:
    table = rows(text("protocol.md"), "key | API | advertised | served | remarks")
    documented = {int(row[0]): tuple(row[1:4]) for row in table}
    assert documented == {
        key: (
            API[key].name,
            f"{API[key].advertised_min} to {API[key].max_version}",
            f"{API[key].min_version} to {API[key].max_version}",
        )
        for key in handlers(Anything())
    }


def test_what_has_a_handler_is_advertised_and_nothing_else() -> None:
    class Question:
        version = 0
        body = None

        def answer(self, response) -> None:
            self.keys = {row.api_key for row in response.api_keys}

    table = handlers(Anything())
    question = Question()
    table[18](question)
    assert question.keys == set(table)


# --- operations.md ---------------------------------------------------------------------------------------------------


def exported(families) -> dict[str, str]:
    """Name as a query spells it -> type, without the metrics of the process."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in families
        if not family.name.startswith("process_")
    }


def documented_metrics(whose: str) -> dict[str, str]:
    return {name_of(row[0]): row[1] for row in rows(text("operations.md"), f"{whose} metric | type | meaning")}


def test_every_metric_of_a_broker_is_documented_and_every_documented_one_exported() -> None:
    from kafkalite_broker.cluster.isr_writer import PartitionWriter

    telemetry = BrokerTelemetry()
    PartitionWriter(None, absorb=None, committed=None, registry=telemetry.registry)
    assert documented_metrics("broker") == exported(telemetry.registry.collect())


def test_every_metric_of_the_operator_is_documented_and_every_documented_one_exported() -> None:
    assert documented_metrics("operator") == exported(OperatorMetrics().registry.collect())


def test_every_reason_of_a_condition_is_documented() -> None:
    table = rows(text("operations.md"), "on | condition | reason | what to do")
    documented = {name for row in table for name in re.findall(r"`([A-Z][A-Za-z]+)`", row[2])}
    code = sources("core/kafkalite_core/controller", "core/kafkalite_core/resources", "operator/kafkalite_operator")
    used = set(re.findall(r'_condition\(\s*\w?"?[A-Za-z_]+"?, (?:True|False|\w+), "([A-Z][A-Za-z]+)"', code))
    used |= set(re.findall(r'Obstacle\(\s*"([A-Z][A-Za-z]+)"', code))
    used |= set(re.findall(r'_problem\(view, "([A-Z][A-Za-z]+)"', code))
    used |= set(re.findall(r'reason, message = .* else \("([A-Za-z]+)"', code))
    assert {"FLUSH_DONE", "FLUSH_RELAXED", "FLUSH_TIGHTENING"} <= set(re.findall(r"\bFLUSH_[A-Z]+\b", code))
    used |= {FLUSH_DONE, FLUSH_RELAXED, FLUSH_TIGHTENING}
    used |= set(re.findall(r'Condition\(type=(?:"\w+"|[A-Z_]+), status="\w+", reason="([A-Za-z]+)"', code))
    used |= set(re.findall(r'reason=failure\.reason or "([A-Za-z]+)"', code))
    assert used >= {"NotEnoughBrokers", "Resizing", "AddressesKnown", "NodeUnknown"}  # the patterns still fit the code
    assert "reason=told.resize" in code
    assert documented == used | KUBERNETES_REASONS


KUBERNETES_REASONS = {"Deferred", "InProgress", "Error", "Forbidden", "NotFound"}
"""Reasons that are the kubelet's (`PodsResized`) or the API server's (`RacksKnown`)."""


def test_every_event_of_the_operator_is_documented() -> None:
    document = text("operations.md")
    events = {name for row in rows(document, "on | reason | what has happened") for name in words_in(row[1])}
    conditions = {
        name
        for row in rows(document, "on | condition | reason | what to do")
        for name in words_in(f"{row[1]} {row[2]}")
    }
    folder = ROOT / "operator" / "kafkalite_operator"
    constants = {
        node.value
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    # Whatever the operator names in camel case is the reason of an Event, or the type or reason of a condition.
    named = {each for each in constants if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", each)}
    assert "LeaderElected" in named
    assert named - events - conditions == set()
    assert events - constants == set()


def test_names_of_the_objects_of_a_cluster_are_documented() -> None:
    documented = {name_of(row[1]) for row in rows(text("operations.md"), "kind | name | what for")}
    of_one = {naming.broker_name("C", 7), naming.data_claim_name("C", 7)}
    of_all = [naming.stateful_set_name, naming.headless_service_name, naming.bootstrap_service_name]
    of_all += [naming.config_map_name, naming.identity_name]
    assert documented == {name.replace("7", "n") for name in of_one} | {name("C") for name in of_all}


def words_in(cell: str) -> set[str]:
    return set(re.findall(r"\b([A-Z][a-z]+(?:[A-Z][a-z]+)*)\b", cell))


def test_exit_codes_of_a_broker_are_documented() -> None:
    from kafkalite_broker.broker import FATAL_EXIT_CODE, IMPATIENT_EXIT_CODE, SUPERSEDED_EXIT_CODE
    from kafkalite_broker.main import USAGE_EXIT_CODE

    documented = {int(row[0]) for row in rows(text("operations.md"), "exit code of a broker | meaning")}
    assert f"a second time ends at once, with {IMPATIENT_EXIT_CODE}." in " ".join(text("operations.md").split())
    assert documented == {0, USAGE_EXIT_CODE, FATAL_EXIT_CODE, SUPERSEDED_EXIT_CODE}


def test_files_of_the_data_directory_are_documented() -> None:
    from kafkalite_broker.log.disk import LockedDirectory
    from kafkalite_core.storage import checkpoints, identity, partition_metadata, reserve

    assert LockedDirectory.__doc__
    names = {name for row in rows(text("operations.md"), "file | content") for name in re.findall(r"`([^`]+)`", row[0])}
    for known in (
        identity.IDENTITY_FILE,
        identity.CLEAN_SHUTDOWN_FILE,
        checkpoints.RECOVERY_POINT,
        checkpoints.HIGH_WATERMARK,
        checkpoints.LOG_START,
        reserve.FILE_NAME,
        f"<topic>-<partition>/{partition_metadata.FILE_NAME}",
    ):
        assert known in names


# --- local-mode.md, README ---------------------------------------------------------------------------------------------


def test_ports_of_local_mode_are_documented() -> None:
    ports = Ports()
    documented = {row[2]: row[1] for row in rows(text("local-mode.md"), "offset | 9092 + offset | what")}
    assert documented == {
        "brokers": ", ".join(str(ports.broker(n)) for n in range(3)),
        "their metrics": ", ".join(str(ports.broker_metrics(n)) for n in range(3)),
        "the operator's metrics": str(ports.operator_metrics),
        "Kubernetes API": str(ports.api_server),
    }


def test_every_kind_of_the_embedded_server_is_documented() -> None:
    from kafkalite_local.apiserver import builtins

    row = rows(text("local-mode.md").replace("| | |", "| what | which |"), "what | which")[0]
    assert row[0] == "kinds"
    documented = set(re.findall(r"\b([A-Z][A-Za-z]+)\b", re.sub(r"\([^)]*\)", "", row[1]))) - {"CRD"}
    kinds = {resource.kind for resource in builtins.BUILTINS}
    assert documented == kinds


def test_readme_names_every_command_of_the_command_line() -> None:
    from kafkalite_cli.main import main

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [line] = [line for line in readme.split("\n\n") if "--help` lists the commands" in line]
    assert set(re.findall(r"`([a-z]+)`", line)) == set(main.list_commands(None))


# --- cli.md ----------------------------------------------------------------------------------------------------------


def commands(command, name: str = "") -> set[str]:
    """Every command and subcommand that does something, as a user types it."""
    import click

    if not isinstance(command, click.Group):
        return {name}
    context = click.Context(command)
    children = {child: command.get_command(context, child) for child in command.list_commands(context)}
    return {each for child, found in children.items() for each in commands(found, f"{name} {child}".strip())}


def test_every_command_is_documented() -> None:
    from kafkalite_cli.main import main

    documented = {name_of(row[0]) for row in rows(text("cli.md"), "command | what it does")}
    assert documented == commands(main)


def test_every_option_that_finds_a_cluster_is_documented() -> None:
    from kafkalite_cli.doctor.command import doctor

    documented = {
        name for row in rows(text("cli.md"), "option | without it") for name in re.findall(r"`(-[^`]+)`", row[0])
    }
    options = {name for option in doctor.params for name in option.opts}
    assert documented == options - {"--all", "-o", "--output"}


def test_every_code_of_the_doctor_is_documented() -> None:
    from kafkalite_cli.doctor.operators import OBJECTS_APPLIED
    from kafkalite_core.model.cluster import BrokerState
    from kafkalite_operator import infrastructure

    code = sources("cli/kafkalite_cli/doctor")
    used = set(re.findall(r'code="([A-Za-z]+)"', code)) | {"VolumePending", "VolumeLost"}
    used |= {f"Broker{state.value}" for state in BrokerState if state is not BrokerState.RUNNING}
    assert 'code=f"Broker{state.value}"' in code, "the pattern still fits the code"
    assert 'code="VolumePending" if phase == "Pending" else "VolumeLost"' in code
    assert infrastructure.CONDITION == OBJECTS_APPLIED, "its reasons are codes"
    used |= {each.reason for each in (infrastructure.REFUSED, infrastructure.FOREIGN, infrastructure.NOT_YET_COLLECTED)}
    documented = {
        name
        for row in rows(text("cli.md"), "code | what it says")
        for name in re.findall(r"`([A-Z][A-Za-z]+)`", row[0])
    }
    assert documented == used
