"""Owners and dependents; namespaces and what is in them."""

from __future__ import annotations

from tests.contract.conftest import CONFIG_MAPS, TOPICS, config_map, topic, until


def owned_by(owner, *, blocking: bool = False):
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {**reference, "blockOwnerDeletion": True} if blocking else reference


async def gone(api, path: str) -> None:
    async def missing() -> bool:
        return (await api.get(path)).status == 404

    await until(missing)


async def collector_has_seen(api, ns: str, owner) -> None:
    """Config maps that were made before this one: it goes by its own watch, and a deletion in between misses a child."""
    absent = {**owned_by(owner), "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}
    await api.create(CONFIG_MAPS.format(ns=ns), config_map("canary", ownerReferences=[absent]))
    await gone(api, f"{CONFIG_MAPS.format(ns=ns)}/canary")


async def test_dependents_go_with_their_owner(api, ns):
    owner = (await api.create(TOPICS.format(ns=ns), topic())).body
    path = CONFIG_MAPS.format(ns=ns)
    child = (await api.create(path, config_map("child", ownerReferences=[owned_by(owner)]))).body
    await api.create(path, config_map("grandchild", ownerReferences=[owned_by(child)]))
    await api.create(path, config_map("stranger"))
    assert (await api.call("DELETE", f"{TOPICS.format(ns=ns)}/orders")).status == 200
    await gone(api, f"{path}/child")
    await gone(api, f"{path}/grandchild")
    assert (await api.get(f"{path}/stranger")).status == 200


async def test_a_second_owner_keeps_a_dependent(api, ns):
    owners = [(await api.create(TOPICS.format(ns=ns), topic(name))).body for name in ("one", "two")]
    path = f"{CONFIG_MAPS.format(ns=ns)}/child"
    references = [owned_by(owner) for owner in owners]
    await api.create(CONFIG_MAPS.format(ns=ns), config_map("child", ownerReferences=references))
    await api.call("DELETE", f"{TOPICS.format(ns=ns)}/one")

    async def one_left() -> bool:
        return len((await api.get(path)).body["metadata"]["ownerReferences"]) == 1

    await until(one_left)
    await api.call("DELETE", f"{TOPICS.format(ns=ns)}/two")
    await gone(api, path)


async def test_a_dependent_of_an_earlier_owner_of_that_name_goes(api, ns):
    """A late writer may still refer to the object that was deleted and made again."""
    old = (await api.create(TOPICS.format(ns=ns), topic())).body
    assert (await api.call("DELETE", f"{TOPICS.format(ns=ns)}/orders")).status == 200
    new = (await api.create(TOPICS.format(ns=ns), topic())).body
    path = CONFIG_MAPS.format(ns=ns)
    await api.create(path, config_map("of-the-old", ownerReferences=[owned_by(old)]))
    await api.create(path, config_map("of-the-new", ownerReferences=[owned_by(new)]))
    await gone(api, f"{path}/of-the-old")
    assert (await api.get(f"{path}/of-the-new")).status == 200


async def test_orphans_stay(api, ns):
    owner = (await api.create(TOPICS.format(ns=ns), topic())).body
    path = f"{CONFIG_MAPS.format(ns=ns)}/child"
    await api.create(CONFIG_MAPS.format(ns=ns), config_map("child", ownerReferences=[owned_by(owner)]))
    await collector_has_seen(api, ns, owner)
    await api.call("DELETE", f"{TOPICS.format(ns=ns)}/orders", {"propagationPolicy": "Orphan"})
    await gone(api, f"{TOPICS.format(ns=ns)}/orders")
    child = await api.get(path)
    assert child.status == 200
    assert "ownerReferences" not in child.body["metadata"]


async def test_foreground_deletion_waits_for_the_dependents(api, ns):
    owner = (await api.create(TOPICS.format(ns=ns), topic())).body
    path = f"{CONFIG_MAPS.format(ns=ns)}/child"
    extra = {"ownerReferences": [owned_by(owner, blocking=True)], "finalizers": ["kafkalite.io/test"]}
    await api.create(CONFIG_MAPS.format(ns=ns), config_map("child", **extra))
    await collector_has_seen(api, ns, owner)
    await api.call("DELETE", f"{TOPICS.format(ns=ns)}/orders", {"propagationPolicy": "Foreground"})

    async def marked() -> bool:
        return "deletionTimestamp" in (await api.get(path)).body["metadata"]

    await until(marked)
    assert (await api.get(f"{TOPICS.format(ns=ns)}/orders")).status == 200, "the owner waits"
    removal = {"metadata": {"finalizers": None}}
    await api.patch(path, removal, "application/merge-patch+json")
    await gone(api, path)
    await gone(api, f"{TOPICS.format(ns=ns)}/orders")


async def test_a_namespace_goes_with_its_contents(api, ns):
    await api.create(TOPICS.format(ns=ns), topic())
    assert (await api.call("DELETE", f"/api/v1/namespaces/{ns}")).status == 200
    await gone(api, f"/api/v1/namespaces/{ns}")
    assert (await api.get(f"{TOPICS.format(ns=ns)}/orders")).status == 404
    assert (await api.call("DELETE", "/api/v1/namespaces/default")).status == 403
