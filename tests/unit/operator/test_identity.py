"""The id of a cluster outlives its object."""

import pytest

from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.manifests import cluster_settings, identity, infrastructure
from kafkalite_operator.identity import cluster_id_for
from kafkalite_runtime.kube.errors import KubeForbidden, KubeNotFound
from tests.unit.resources.builders import cluster_object


class Answers:
    def __init__(self, answer):
        self.answer = answer

    async def get(self, kind, namespace, name, *, deadline_s):
        assert (kind.kind, name) == ("ConfigMap", "kafkalite-identity")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def without_status():
    return parse_cluster({**cluster_object(), "status": None})


async def test_a_cluster_that_was_there_before_gets_the_id_that_it_had():
    known = {"metadata": {}, "data": {"clusterId": "h0t-6T8VQ_ywNUXdJzGHzA"}}
    assert await cluster_id_for(Answers(known), without_status()) == "h0t-6T8VQ_ywNUXdJzGHzA"


@pytest.mark.parametrize("answer", [KubeNotFound(404, "", ""), {"metadata": {}}, {"data": {"clusterId": "a b"}}])
async def test_a_new_one_gets_an_id_of_its_own(answer):
    ids = {await cluster_id_for(Answers(answer), without_status()) for _ in range(3)}
    assert len(ids) == 3
    assert all(len(cluster_id) == 22 for cluster_id in ids)


async def test_an_id_that_cannot_be_read_just_now_is_waited_for():
    with pytest.raises(KubeForbidden):
        await cluster_id_for(Answers(KubeForbidden(403, "Forbidden", "no")), without_status())


def test_the_id_is_kept_where_nothing_collects_it():
    settings = cluster_settings(cluster_object(status={"clusterId": "abc"}))
    kept = identity(settings)
    assert kept["data"] == {"clusterId": "abc"}
    assert "ownerReferences" not in kept["metadata"]
    made = [obj["metadata"]["name"] for obj in infrastructure(settings, [0])]
    assert made[0] == "kafkalite-identity"
    unnamed = cluster_settings({**cluster_object(), "status": {}})
    assert "kafkalite-identity" not in [obj["metadata"]["name"] for obj in infrastructure(unnamed, [0])]
