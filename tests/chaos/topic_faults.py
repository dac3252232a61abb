"""Faults by what users may do under load: delete a topic and make it again, let it grow, move its replicas."""

from __future__ import annotations

import http.client
import time

from tests.chaos.api import ApiRefusedError
from tests.chaos.cluster import NotHealedError
from tests.chaos.faults import Bite, Run, fault
from tests.chaos.signal_faults import kill
from tests.chaos.workloads import TOPIC, Traffic

AGAIN = "again"
GONE_LIMIT_S = 60.0
MOVE_LIMIT_S = 60.0


def topic_id(run: Run, name: str) -> str:
    """Of a topic, empty when there is none."""
    topic = run.cluster.log.objects("kafkalitetopics").get(name) or {}
    return str((topic.get("status") or {}).get("topicId", ""))


def recreate(run: Run, harm: bool = False) -> None:
    """A topic of the same name under load: its end, perhaps with a broker killed meanwhile, and its second life."""
    name = f"{AGAIN}-{len(run.extra_traffic)}"
    directory = run.cluster.home.root.parent
    first = Traffic(run.cluster, run.traffic.workload, directory / f"history-{name}-first", name)
    first.start()
    before = topic_id(run, name)
    made_again = Bite("another topic of that name", lambda: bool(topic_id(run, name)) and topic_id(run, name) != before)
    run.harm(f"topic {name} deleted under load and made again", [], made_again)
    run.cluster.api.delete("kafkalitetopics", name)
    if harm:
        run.sleep(0, 0.5)
        kill(run, run.leader(), "leader")
    first.stop(2.0)  # what it was told is void: the topic is gone
    limit = time.monotonic() + GONE_LIMIT_S
    while exists(run, name):
        if time.monotonic() > limit:
            raise NotHealedError(f"topic {name} is still there {GONE_LIMIT_S:.0f} s after it was deleted")
        time.sleep(0.1)
    second = Traffic(run.cluster, run.traffic.workload, directory / f"history-{name}-second", name, alone=True)
    run.extra_traffic.append(second)
    second.start()
    run.sleep(2, 4)
    second.stop()


def exists(run: Run, name: str) -> bool:
    """Whether the API server has the topic's object."""
    try:
        run.cluster.api.get("kafkalitetopics", name)
    except ApiRefusedError as error:
        if error.code == 404:
            return False
        raise
    except (OSError, http.client.HTTPException):
        return True
    return True


@fault("topic-recreated", workloads=("steady", "single", "rolling"), rounds=2)
def topic_recreated(run: Run) -> None:
    """A topic is deleted and made again under load: its second life begins at 0 and holds nothing of the first."""
    recreate(run)


@fault("topic-recreated-and-killed", workloads=("steady", "wide"), rounds=2)
def topic_recreated_and_killed(run: Run) -> None:
    """A topic is deleted, a broker is killed at the same time, and the topic is made again."""
    recreate(run, harm=True)


@fault("topic-grows", workloads=("steady", "wide"), rounds=2)
def topic_grows(run: Run) -> None:
    """The topic gets more partitions while its leader is killed."""
    before = len(run.cluster.partitions(TOPIC))
    grown = Bite("more partitions", lambda: len(run.cluster.partitions(TOPIC)) == before + 3)
    run.harm("three more partitions", [], grown)
    run.cluster.api.merge("kafkalitetopics", TOPIC, {"spec": {"partitions": before + 3}})
    kill(run, run.leader(), "leader", run.election())


def replica_counts(run: Run) -> set[int]:
    """How many replicas the topic's partitions have."""
    return {len(entry["replicas"]) for entry in run.cluster.partitions(TOPIC).values()}


@fault("reassign", workloads=("steady", "wide", "single"), rounds=2)
def reassign(run: Run) -> None:
    """The topic goes down to two replicas and back to three under load; a leader is killed while replicas are added."""
    two: list[bool] = []
    run.harm("down to two replicas", [], Bite("two replicas", lambda: any(two)))
    run.cluster.api.merge("kafkalitetopics", TOPIC, {"spec": {"replicas": 2}})
    if run.cluster.log.wait(lambda: replica_counts(run) == {2}, MOVE_LIMIT_S):
        two.append(True)
    run.sleep(0.5, 2)
    run.harm("back to three replicas", [], Bite("three replicas", lambda: replica_counts(run) == {3}))
    run.cluster.api.merge("kafkalitetopics", TOPIC, {"spec": {"replicas": 3}})
    run.sleep(0, 0.7)
    kill(run, run.leader(), "leader, while replicas are added")
