"""What keeps the repository tidy and no other tool checks."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from kafkalite_cli.local_mode.operator_manifest import default_cluster as local_default_cluster
from kafkalite_core.model.cluster import Broker, BrokerState, Cluster, Recovery, Registration
from kafkalite_core.model.config import check_topic_config
from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
from kafkalite_core.model.topic import Condition, Holding, Stray
from kafkalite_core.resources import patches
from kafkalite_core.resources.conditions import set_conditions
from kafkalite_core.resources.manifests import broker_object, cluster_settings, default_cluster
from kafkalite_local.apiserver.schema import compile_schema, validate
from kafkalite_runtime.home import Ports

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "runtime", "broker_image", "operator", "cli", "local", "spark_app")
MODULE_LINES_MAX = 450
FUNCTION_LINES_MAX = 75


@cache
def committed() -> tuple[Path, ...]:
    """Every file under version control, and every new one that is not ignored."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    return tuple(path for name in sorted(set(names)) if (path := ROOT / name).is_file())


def python_files(*, generated: bool = True) -> list[Path]:
    files = [path for path in committed() if path.suffix == ".py"]
    return files if generated else [path for path in files if "generated" not in path.parts]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# --- files -----------------------------------------------------------------------------------------------------------


def test_there_are_files_to_look_at():
    assert len(python_files(generated=False)) > 100
    assert any(path.suffix == ".md" for path in committed())


def test_operator_is_no_package():
    assert not (ROOT / "operator" / "__init__.py").exists(), "it would shadow the standard library's `operator`"


def test_modules_are_of_readable_length():
    lengths = {short(path): text_of(path).count("\n") for path in python_files(generated=False)}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_fit_a_screen():
    long = {
        f"{short(path)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in python_files(generated=False)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == {}


# Spelled in pieces, so that this file has none of them.
UNFINISHED = re.compile(
    r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")) + r")\b"
)
# A place that packages come from, where a file could pin it: the user's own client decides that, never the project.
INDEX_OPTIONS = re.compile(r"--(?:extra-)?index-url|--find-links|--trusted-host|<repositor|\bGOPROXY\s*=|^registry\s*=")
PACKAGE_FILES = (
    "constraints",
    "pyproject.toml",
    "go.mod",
    "go.sum",
    "pom.xml",
    "Dockerfile",
    ".npmrc",
    "pip.conf",
    "Makefile",
)


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{short(path)}:{number}: {line.strip()[:100]}"
        for path in committed()
        if path.suffix not in {".png", ".bin", ".sum"}
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def test_nothing_is_left_unfinished():
    allowed = ("tests/test_tidy.py", "CONTRIBUTING.md")
    assert [line for line in lines_with(UNFINISHED) if not line.startswith(allowed)] == []


def test_no_file_names_a_package_registry():
    allowed = ("tests/test_tidy.py",)
    assert [line for line in lines_with(INDEX_OPTIONS) if not line.startswith(allowed)] == []
    urls = re.compile(r"https?://(?!(?:127\.0\.0\.1|localhost|maven\.apache\.org/POM|www\.w3\.org))")
    named = [line for line in lines_with(urls) if line.split(":", 1)[0].rsplit("/", 1)[-1].startswith(PACKAGE_FILES)]
    assert named == []


def test_text_files_end_with_a_newline_and_have_no_trailing_blanks():
    suffixes = {".py", ".md", ".yaml", ".toml", ".sh", ".txt", ".cfg"}
    bad = []
    for path in committed():
        if path.suffix not in suffixes or not path.stat().st_size:
            continue
        content = text_of(path)
        if not content.endswith("\n") or content.endswith("\n\n"):
            bad.append(f"{short(path)}: end of file")
        bad += [f"{short(path)}:{n}" for n, line in enumerate(content.splitlines(), 1) if line != line.rstrip()]
    assert bad == []


def test_every_package_says_what_it_is_for():
    silent = [
        short(path)
        for path in python_files()
        if path.name == "__init__.py"
        and path.relative_to(ROOT).parts[0] in PACKAGES
        and not ast.get_docstring(tree(path))
    ]
    assert silent == []


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES}
    assert [short(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_scripts_can_be_run_and_say_with_what():
    scripts = [path for path in committed() if path.suffix == ".sh" or short(path) == ".ci/run"]
    assert scripts
    assert [short(path) for path in scripts if not text_of(path).startswith("#!")] == []
    assert [short(path) for path in scripts if not path.stat().st_mode & 0o100] == []


# --- Markdown --------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    content = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", content, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere():
    broken = []
    for path in committed():
        if path.suffix != ".md":
            continue
        content = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)\s]+)\)", content):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = unquote(target).partition("#")
            file = (path.parent / name).resolve() if name else path
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{short(path)}: {target}")
    assert broken == []


def test_every_document_can_be_reached_from_the_readme():
    reached: set[Path] = set()
    open_ = [ROOT / "README.md"]
    while open_:
        path = open_.pop()
        reached.add(path)
        targets = re.findall(r"\]\(([^)\s#]+)", text_of(path))
        found = [(path.parent / target).resolve() for target in targets if not re.match(r"[a-z]+:", target)]
        open_ += [file for file in found if file.suffix == ".md" and file.is_file() and file not in reached]
    assert [short(path) for path in committed() if path.suffix == ".md" and path not in reached] == []


def test_every_decision_is_in_the_list():
    listed = text_of(ROOT / "docs/decisions/README.md")
    records = [path.name for path in committed() if path.parent.name == "decisions" and path.name[0].isdigit()]
    assert records
    assert [name for name in records if f"({name})" not in listed] == []
    titles = {name: text_of(ROOT / "docs/decisions" / name).splitlines()[0] for name in records}
    assert [name for name, title in titles.items() if not title.startswith(f"# {name[:3]}: ")] == []


# --- custom resources ------------------------------------------------------------------------------------------------


@cache
def definition(kind: str) -> dict:
    documents = [yaml.safe_load(text_of(path)) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    [found] = [document for document in documents if document["spec"]["names"]["kind"] == kind]
    return found


def schema_of(kind: str) -> dict:
    [version] = definition(kind)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def problems(kind: str, obj: dict) -> list[str]:
    """What the schema says against the object, unknown fields included. CEL rules are the contract tests' matter."""
    errors: list = []
    validate(compile_schema(schema_of(kind)), obj, None, "", errors)
    return [str(error) for error in errors] + unknown(schema_of(kind), obj, "")


def unknown(schema: dict, value: object, path: str) -> list[str]:
    """Fields that the schema does not have: the API server would drop them without a word."""
    if path == ".metadata" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        return [found for item in value for found in unknown(schema.get("items", {}), item, path + "[]")]
    if not isinstance(value, dict):
        return []
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    found = []
    for name, child in value.items():
        if name in properties:
            found += unknown(properties[name], child, f"{path}.{name}")
        elif isinstance(extra, dict):
            found += unknown(extra, child, f"{path}.*")
        else:
            found.append(f"{path}.{name}: not in the schema")
    return found


def example_objects() -> list[tuple[str, dict]]:
    return [
        (short(path), document)
        for path in committed()
        if path.suffix == ".yaml" and path.relative_to(ROOT).parts[0] == "examples"
        for document in yaml.safe_load_all(text_of(path))
    ]


@pytest.mark.parametrize(("name", "obj"), example_objects(), ids=lambda value: value if isinstance(value, str) else "")
def test_examples_fit_their_schema(name: str, obj: dict):
    assert obj["apiVersion"] == "kafkalite.io/v1alpha1"
    assert problems(obj["kind"], obj) == []
    if obj["kind"] == "KafkaLiteTopic":
        assert check_topic_config(obj["spec"].get("config", {}), replicas=obj["spec"]["replicas"]) == []


def test_there_are_examples():
    assert {obj["kind"] for _, obj in example_objects()} >= {"KafkaLiteTopic"}


def test_the_check_of_unknown_fields_finds_one():
    topic = {"apiVersion": "", "kind": "", "metadata": {}, "spec": {"partitions": 1, "replicas": 1, "colour": "red"}}
    assert problems("KafkaLiteTopic", topic) == [".spec.colour: not in the schema"]


# --- what the code writes, against the schema ----------------------------------------------------------------------------

NOW = "2026-01-01T00:00:00Z"
METADATA = {"name": "a", "namespace": "default", "uid": "uid", "resourceVersion": "1", "generation": 1}
ENTRY = Partition(
    leader=0, leader_epoch=1, partition_epoch=2, min_isr=1, replicas=(0, 1),
    isr=(IsrEntry(0, 3),), elr=(IsrEntry(1, 2),), adding=(1,), removing=(0,), recovering=True,
)  # fmt: skip
TOPIC = TopicRef("default", "a", "uid", "5f0c0000-0000-4000-8000-000000000000", "a")
ISR = {"isr": (IsrEntry(0, 3), IsrEntry(1, -1)), "isr_epoch": 1, "isr_leader_epoch": 1}
STRAY = Stray(
    topic="a", topic_id="id", partition=0, leader_epoch=1, partition_epoch=2, end_offset=3, log_epoch=1, relaxed_flush=True, **ISR
)  # fmt: skip
HOLDING = Holding(
    topic="a", topic_id="id", partition=0, leader_epoch=1, partition_epoch=2, log_epoch=1, end_offset=3, **ISR
)  # fmt: skip


RECOVERY = Recovery(incarnation="i", started_at=NOW, remaining_logs=2, remaining_segments=3)


def registered() -> Registration:
    return Registration(
        broker_epoch=3, incarnation="i", directory_id="d", trusted_since=1, clean_since=1, host="h", port=1, rack="r",
        state=BrokerState.RUNNING, metrics_url="http://h:1/metrics",
    )  # fmt: skip


def written(operations: list[dict]) -> dict:
    """The status that a patch leaves behind on an object without one."""
    result: dict = {}
    for operation in operations:
        if operation["op"] == "test":
            continue
        *parents, last = operation["path"].strip("/").split("/")
        place = result
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = operation["value"]
    assert set(result) == {"status"}, "only statuses are patched"
    return result


def conditions() -> list[dict]:
    wanted = [Condition(type="Ready", status="True", reason="Serving", message="it serves")]
    return set_conditions([], wanted, generation=1, now=NOW)


def summary(**fields: object) -> list[dict]:
    values = {"observedGeneration": 1, "conditions": conditions(), **fields}
    return patches.status_summary("uid", values, resource_version="1", has_status=True)


def writes() -> list[tuple[str, str, dict]]:
    """What was written by which function, to which kind."""
    broker = Broker(id=0, registration=registered(), uid="uid")
    cluster = Cluster(
        namespace="default", name="a", uid="uid", cluster_id="0123456789012345678901", replicas=3,
        next_broker_epoch=5, next_producer_id=0,
    )  # fmt: skip
    bare = {"metadata": METADATA}
    first = patches.first_status(TOPIC, {0: ENTRY}, resource_version="1", has_status=False, controller_epoch=1)
    added = patches.added_partitions(TOPIC, {0: ENTRY}, resource_version="1", controller_epoch=1)
    bootstrap = {"bootstrap": "h:1", "brokers": {"ready": 1, "total": 3}, "replicas": 3, "labelSelector": "a=b"}
    return [
        ("first_status", "KafkaLiteTopic", written(first)),
        ("added_partitions", "KafkaLiteTopic", written(added)),
        ("conditions", "KafkaLiteTopic", written(summary(inSync="1/2"))),
        ("registration", "KafkaLiteBroker", written(patches.registration(bare, registered(), [STRAY], [HOLDING]))),
        (
            "registration_update",
            "KafkaLiteBroker",
            written(patches.registration_update(broker, registered(), [STRAY], [HOLDING])),
        ),
        ("recovery_begun", "KafkaLiteBroker", written(patches.recovery_begun(bare, RECOVERY))),
        ("recovery_progress", "KafkaLiteBroker", written(patches.recovery_progress("uid", RECOVERY))),
        ("fence", "KafkaLiteBroker", written(patches.fence(broker, reason="LeaseExpired", since=NOW))),
        ("next_broker_epoch", "KafkaLiteCluster", written(patches.next_broker_epoch(cluster))),
        ("producer_id_block", "KafkaLiteCluster", written(patches.producer_id_block(cluster))),
        ("take_control", "KafkaLiteCluster", written(patches.take_control(bare, holder="h", epoch=1, cluster_id="c"))),
        ("conditions", "KafkaLiteCluster", written(summary(**bootstrap))),
    ]


def parts(schema: dict, obj: dict) -> list[str]:
    """Problems of the status alone: what is checked here has no spec."""
    errors: list = []
    validate(compile_schema(schema["properties"]["status"]), obj["status"], None, ".status", errors)
    return [str(error) for error in errors] + unknown(schema, obj, "")


@pytest.mark.parametrize(
    ("function", "kind", "obj"), writes(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_written_into_a_status_is_in_the_schema(function: str, kind: str, obj: dict):
    assert parts(schema_of(kind), obj) == []


def test_every_field_of_a_partition_entry_is_written():
    entry = schema_of("KafkaLiteTopic")["properties"]["status"]["properties"]["partitions"]["additionalProperties"]
    [obj] = [obj for function, _, obj in writes() if function == "first_status"]
    assert set(obj["status"]["partitions"]["0"]) == set(entry["properties"])


def test_objects_that_are_made_fit_their_schema():
    cluster = default_cluster("default", "kafkalite", local_default_cluster(Ports()))
    assert problems("KafkaLiteCluster", cluster) == []
    stored = cluster | {"metadata": cluster["metadata"] | METADATA}
    assert problems("KafkaLiteBroker", broker_object(cluster_settings(stored), 0)) == []
