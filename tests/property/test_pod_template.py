"""Whatever JSON stands in `spec.template.pod` is refused by name, or everything that is made of it can be rendered."""

import json

from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.manifests import cluster_settings, infrastructure
from kafkalite_core.resources.statefulset import revision, wanted_amounts
from tests.unit.resources.builders import cluster_object

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
NAMES = st.sampled_from(["broker", "config", "data", "POD_NAME", "tcp-plain", "other"])
JSON = st.recursive(
    SCALARS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def mostly(good):
    """What is expected there, with the names that the operator's own template has, or anything."""
    return st.one_of(good, good, good, st.none(), JSON)


def parts(**known):
    """An object of which any of these parts is there, beside something else."""
    return mostly(st.fixed_dictionaries({}, optional={**known, "x": JSON}))


def listed(**known):
    item = st.fixed_dictionaries({"name": mostly(NAMES)}, optional={**known, "x": JSON})
    return mostly(st.lists(st.one_of(item, item, item, JSON), max_size=3))


AMOUNTS = parts(cpu=mostly(st.sampled_from(["1", "500m", 2, 0.5])), memory=mostly(st.just("1Gi")))
CONTAINERS = listed(
    env=listed(value=JSON),
    ports=listed(containerPort=JSON),
    volumeMounts=listed(mountPath=JSON),
    resources=parts(requests=AMOUNTS, limits=AMOUNTS),
    securityContext=JSON,
)
TEXTS = parts(a=mostly(st.text(max_size=3)))
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": parts(labels=TEXTS, annotations=TEXTS),
        "spec": parts(
            containers=CONTAINERS, volumes=listed(configMap=JSON), securityContext=JSON, topologySpreadConstraints=JSON
        ),
        "x": JSON,
    },
)


@given(pod=st.one_of(TEMPLATES, TEMPLATES, JSON))
@settings(max_examples=1000, deadline=None)
def test_a_template_is_refused_or_can_be_rendered(pod):
    obj = cluster_object(spec={"template": {"pod": pod}}, status={"clusterId": "id"})
    before = json.dumps(obj)
    try:
        found = cluster_settings(obj)
    except ResourceError as error:
        event("refused")
        refused = str(error)
    else:
        event("rendered")
        refused = ""
    if refused:
        assert "spec.template.pod" in refused
        return
    made = {each["kind"]: each for each in infrastructure(found, range(3))}
    template = made["StatefulSet"]["spec"]["template"]
    # What no broker can do without is still there.
    assert template["metadata"]["labels"]["kafkalite.io/cluster"]
    for key, name in (("containers", "broker"), ("volumes", "config")):
        if pod and (pod.get("spec") or {}).get(key) != []:
            assert name in [each["name"] for each in template["spec"][key]]
    assert template["metadata"]["annotations"]["kafkalite.io/revision"] == revision(found)
    for amount in wanted_amounts(found):
        assert all(isinstance(part, str) for part in (amount.container, amount.kind, amount.resource, amount.value))
    assert json.dumps(obj) == before, "what was read is not changed"
