"""Rules of `spec.config`: what decides which records go, or what a crash may take, is refused where it cannot be read."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite_core.model.config import BROKER_KEYS, TOPIC_KEYS
from kafkalite_core.model.errors import ConfigError
from tests.contract.conftest import CLUSTERS, JSON_PATCH, MERGE_PATCH, TOPICS, causes, cluster, load_crds, topic

UNCLEAN = "unclean.leader.election.enable must be true or false"
KEYS_OF_A_TOPIC = {
    "cleanup.policy": "cleanup.policy must be delete, compact or both with a comma between",
    "retention.ms": "retention.ms must be a whole number from -1, which means no limit",
    "retention.bytes": "retention.bytes must be a whole number from -1, which means no limit",
    "flush.messages": "flush.messages must be a whole number from 1",
    "unclean.leader.election.enable": UNCLEAN,
}
KEYS_OF_A_CLUSTER = {
    "log.cleanup.policy": "log.cleanup.policy must be delete, compact or both with a comma between",
    "log.retention.ms": "log.retention.ms must be a whole number from -1, which means no limit",
    "log.retention.bytes": "log.retention.bytes must be a whole number from -1, which means no limit",
    "log.flush.interval.messages": "log.flush.interval.messages must be a whole number from 1",
    "unclean.leader.election.enable": UNCLEAN,
    "min.insync.replicas": "min.insync.replicas must be a whole number from 1",
}
SPACES = "\u2003\u0085\t "
WORDS = ["", " ", "x", "1.5", "-2", "-10", "--1", "1 0", "1e3", "0x10", "7d", "none", "null"]
POLICIES = ["delete", "compact", "delete,compact", " compact ,delete,", ",,delete", f"{SPACES}delete{SPACES},\ncompact"]
NUMBERS = ["1", "604800000", "+1", "007", " 7\n", "1_000", "\u0661\u0660", f"{SPACES}9{SPACES}", str(2**31 - 1)]
UNLIMITED = ["-1", "0", "-0", "-01", " -0_1 ", "-\u0661", "0_0", str(2**63 - 1)]
FLAGS = ["true", "false", "True", "FALSE", f"{SPACES}tRuE{SPACES}"]
NO_POLICIES = [*WORDS, ",", "Delete", "delete;compact", "delete compact", "deletecompact", "delete,compacted"]
NO_FLAGS = [*WORDS, "1", "yes", "true,false", "truefalse"]


def tried_values(name):
    """(values that the parsers take, values that they do not) of a key."""
    if name.endswith("cleanup.policy"):
        return POLICIES, NO_POLICIES
    if name == "unclean.leader.election.enable":
        return FLAGS, NO_FLAGS
    if "retention" in name:
        return [*NUMBERS, *UNLIMITED], WORDS
    return NUMBERS, [*WORDS, "0", "-1", "00", "+0"]


CONFIGURED = [
    *((TOPICS, topic, TOPIC_KEYS[name], message) for name, message in KEYS_OF_A_TOPIC.items()),
    *((CLUSTERS, cluster, BROKER_KEYS[name], message) for name, message in KEYS_OF_A_CLUSTER.items()),
]


@pytest.mark.parametrize(("path", "make", "key", "message"), CONFIGURED, ids=lambda value: getattr(value, "name", ""))
async def test_a_typing_error_in_what_deletes_records_is_refused_and_what_parses_is_not(
    api, ns, path, make, key, message
):
    path, (taken, refused) = f"{path.format(ns=ns)}?dryRun=All", tried_values(key.name)
    for text in taken:
        key.parse(key.name, text)
        assert (await api.call("POST", path, make(config={key.name: text}))).status == 201, text
    for text in refused:
        with pytest.raises(ConfigError):
            key.parse(key.name, text)
        answer = await api.call("POST", path, make(config={key.name: text}))
        assert causes(answer) == [("spec.config", f'Invalid value: "object": {message}')], text


async def until_answered(api, path, body, status):
    """A definition holds a moment after it was written."""
    for _ in range(300):
        if (await api.call("POST", path, body)).status == status:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"the definition did not come into force: {status} was never answered")


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RULES = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/config/x-kubernetes-validations"


@pytest.mark.parametrize(
    ("plural", "path", "make", "key"),
    [
        ("kafkalitetopics", TOPICS, topic, "retention.ms"),
        ("kafkaliteclusters", CLUSTERS, cluster, "log.retention.ms"),
    ],
)
async def test_a_wrong_value_of_before_the_rules_holds_up_no_other_change(api, ns, real, plural, path, make, key):
    """Ratcheting goes by the whole map: who changes the configuration has to mend it, anything else goes through."""
    path, definition = path.format(ns=ns), f"{DEFINITIONS}/{plural}.kafkalite.io"
    [rules] = [
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["config"][
            "x-kubernetes-validations"
        ]
        for crd in load_crds()
        if crd["spec"]["names"]["plural"] == plural
    ]
    body = make("old", replicas=1, config={key: "soon"})
    removed = await api.patch(definition, [{"op": "remove", "path": RULES}], JSON_PATCH)
    try:
        assert removed.status == 200, removed.body
        await until_answered(api, path, body, 201)
    finally:
        await api.patch(definition, [{"op": "add", "path": RULES, "value": rules}], JSON_PATCH)
    await until_answered(api, f"{path}?dryRun=All", make("new", config={key: "soon"}), 422)
    for change in ({"metadata": {"labels": {"a": "b"}}}, {"spec": {"replicas": 2}}):
        assert (await api.patch(f"{path}/old", change, MERGE_PATCH)).status == 200
    status = {"status": {"observedGeneration": 1}}
    assert (await api.patch(f"{path}/old/status", status, MERGE_PATCH)).status == 200
    other = {"spec": {"config": {"segment.ms": "1"}}}
    assert [field for field, _ in causes(await api.patch(f"{path}/old", other, MERGE_PATCH))] == ["spec.config"]
    other["spec"]["config"][key] = "7"
    assert (await api.patch(f"{path}/old", other, MERGE_PATCH)).status == 200
