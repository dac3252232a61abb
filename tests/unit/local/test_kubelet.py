"""Supervisor, API server, kubelet and pods as real processes; the pods run a small script instead of a broker."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.apiserver.server import ApiServer
from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.home import Home, ProcessRecord, start_time_of
from kafkalite_runtime.kube import (
    CONFIG_MAPS,
    EVENTS,
    NODES,
    PODS,
    STATEFUL_SETS,
    KubeClient,
    KubeConflict,
    KubeNotFound,
)
from kafkalite_runtime.kube.config import KubeConfig

MAIN = [sys.executable, "-m", "kafkalite_local.main"]
SCRIPT = r"""#!{python}
import http.server, json, os, signal, sys
message = {{"incarnation": str(os.getpid()), "brokerEpoch": 1}}
open(os.environ["END"], "w").write(json.dumps(message))
open(os.path.join(os.environ["DATA"], "pid"), "w").write(str(os.getpid()))
print("config", open(os.environ["CONFIG"]).read(), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
port = int(os.environ["PORT"]) + int(os.environ["POD_NAME"].rsplit("-", 1)[1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def stateful_set(name, port, replicas=2):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"app": name}},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }
            ],
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "hostNetwork": True,
                    "terminationGracePeriodSeconds": 5,
                    "volumes": [{"name": "config", "configMap": {"name": "settings"}}],
                    "containers": [
                        {
                            "name": "broker",
                            "image": "x",
                            "command": ["stand-in"],
                            "env": [
                                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                                {"name": "PORT", "value": str(port)},
                                {"name": "DATA", "value": "/data"},
                                {"name": "CONFIG", "value": "/config/text"},
                                {"name": "END", "value": "/dev/termination-log"},
                            ],
                            "readinessProbe": {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1},
                            "volumeMounts": [
                                {"name": "data", "mountPath": "/data"},
                                {"name": "config", "mountPath": "/config"},
                            ],
                        }
                    ],
                },
            },
        },
    }


class World:
    """A home with a running supervisor."""

    def __init__(self, folder):
        self.home = Home(folder / "home")
        self.ports = free_ports()
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        script = bin_folder / "stand-in"
        script.write_text(SCRIPT.format(python=sys.executable))
        script.chmod(0o755)
        self.environ = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
        self.supervisor = None

    def start(self):
        self.home.create()
        with (self.home.logs / "supervisor.log").open("ab") as log:
            self.supervisor = subprocess.Popen(
                [*MAIN, "supervisor", "--home", str(self.home.root), "--port-base", str(self.ports.base)],
                env=self.environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self):
        self.supervisor.terminate()
        assert self.supervisor.wait(30) == 0

    def pid(self, name):
        return ProcessRecord.read(self.home.run / f"{name}.json").pid

    def kill(self, name, number=signal.SIGKILL):
        pid = self.pid(name)
        os.kill(pid, number)
        return pid


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("kubelet"))
    world.start()
    yield world
    world.stop()


@pytest.fixture
async def client(world):
    await until(lambda: world.home.kubeconfig.is_file(), "kubeconfig")
    client = KubeClient(KubeConfig.from_file(world.home.kubeconfig))
    yield client
    await client.close()


async def until(condition, what, timeout_s=60):
    """Poll real processes from outside; there is no event to wait for."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
        except Exception as error:
            result, reason = None, error
        else:
            reason = "false"
        if result:
            return result
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s} s ({reason})"
        await asyncio.sleep(0.03)


async def container(client, name):
    pod = await client.get(PODS, "default", name)
    return pod["status"]["containerStatuses"][0]


async def running(client, name, *, restarts=None):
    status = await container(client, name)
    fits = restarts is None or status["restartCount"] == restarts
    return status if status["ready"] and "running" in status["state"] and fits else None


@pytest.fixture
async def pods(world, client):
    """Two ready pods of a StatefulSet of this test alone."""
    await until(lambda: client.get(NODES, None, "local"), "node")
    name = f"s{time.monotonic_ns()}"
    with contextlib.suppress(KubeConflict):
        await client.create(CONFIG_MAPS, "default", {"metadata": {"name": "settings"}, "data": {"text": "one"}})
    await client.create(STATEFUL_SETS, "default", stateful_set(name, free_ports().base + 20))
    names = [f"{name}-{n}" for n in range(2)]
    for each in names:
        await until(lambda each=each: running(client, each), each)
    yield names
    await client.merge_patch(STATEFUL_SETS, "default", name, {"spec": {"replicas": 0}})
    for each in names:
        await until(lambda each=each: gone(client, each), f"{each} gone")
    await client.delete(STATEFUL_SETS, "default", name)


async def gone(client, name):
    try:
        await client.get(PODS, "default", name)
    except KubeNotFound:
        return True
    return False


async def test_a_killed_process_is_reported_and_started_again_at_once(world, client, pods):
    name, other = pods
    before = await container(client, other)
    pid = world.kill(f"pods/{name}")
    started = time.monotonic()
    status = await until(lambda: running(client, name, restarts=1), "restart")
    assert time.monotonic() - started < 20, "the start of Python on a busy machine included"
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")
    assert json.loads(ended["message"])["incarnation"] == str(pid)
    assert status["containerID"] != ended["containerID"]
    assert await container(client, other) == before
    events = (await client.list(EVENTS, "default")).items
    assert any(event["reason"] == "Started" and event["involvedObject"]["name"] == name for event in events)


async def test_a_killed_kubelet_adopts_its_pods_and_learns_how_they_ended(world, client, pods):
    first, second = pods
    before = {name: world.pid(f"pods/{name}") for name in pods}
    old = world.kill("kubelet")
    ended_meanwhile = world.kill(f"pods/{first}", signal.SIGTERM)
    await until(lambda: world.pid("kubelet") != old, "new kubelet")
    status = await until(lambda: running(client, first, restarts=1), "restart of the one that ended meanwhile")
    assert json.loads(status["lastState"]["terminated"]["message"])["incarnation"] == str(ended_meanwhile)
    assert status["lastState"]["terminated"]["exitCode"] == 0
    assert world.pid(f"pods/{second}") == before[second]
    assert (await container(client, second))["restartCount"] == 0
    # Now the end of a process that this kubelet adopted, seen as fast as that of a child.
    world.kill(f"pods/{second}")
    status = await until(lambda: running(client, second, restarts=1), "restart of an adopted one")
    assert status["lastState"]["terminated"]["signal"] == 9


async def test_pods_go_on_without_the_api_server(world, client, pods):
    first, second = pods
    api_server = world.kill("apiserver", signal.SIGSTOP)
    try:
        world_pid = world.pid(f"pods/{second}")
        killed = world.kill(f"pods/{first}")
        await until(lambda: world.pid(f"pods/{first}") != killed, "restart without the API server")
        kubelet = world.kill("kubelet")
        await until(lambda: world.pid("kubelet") != kubelet, "kubelet")
        assert world.pid(f"pods/{second}") == world_pid
    finally:
        os.kill(api_server, signal.SIGCONT)
    status = await until(lambda: running(client, first, restarts=1), "late report")
    assert json.loads(status["lastState"]["terminated"]["message"])["incarnation"] == str(killed)
    assert start_time_of(world_pid)


async def test_a_killed_api_server_comes_back_and_disturbs_no_pod(world, client, pods):
    before = [await container(client, name) for name in pods]
    pid = world.kill("apiserver")
    await until(lambda: world.pid("apiserver") != pid, "new API server")
    await until(lambda: client.get(NODES, None, "local"), "API server")
    assert [await container(client, name) for name in pods] == before


async def test_a_deleted_pod_is_ended_gently_and_made_again_with_its_data(world, client, pods):
    name = pods[0]
    old = await client.get(PODS, "default", name)
    pid = world.pid(f"pods/{name}")
    await client.delete(PODS, "default", name)

    async def replaced():
        pod = await client.get(PODS, "default", name)
        return pod["metadata"]["uid"] != old["metadata"]["uid"] and await running(client, name)

    await until(replaced, "new pod")
    assert start_time_of(pid) is None
    assert (world.home.volumes / f"data-{name}" / "pid").read_text() == str(world.pid(f"pods/{name}"))
    assert (await container(client, name))["restartCount"] == 0


async def test_config_map_changes_reach_the_files(world, client, pods):
    await client.merge_patch(CONFIG_MAPS, "default", "settings", {"data": {"text": "two"}})
    path = world.home.pods / pods[0] / "volumes" / "config" / "text"
    await until(lambda: path.read_text() == "two", "file")
    await client.merge_patch(CONFIG_MAPS, "default", "settings", {"data": {"text": "one"}})


async def test_a_static_pod_runs_and_is_shown(world, client):
    manifest = world.home.manifests / "sleeper.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: sleeper}\n"
        "spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: x, command: [sleep, '600']}]}\n"
    )
    try:
        await until(lambda: running(client, "sleeper-local"), "static pod")
        pid = world.pid("pods/sleeper-local")
        await client.delete(PODS, "default", "sleeper-local", grace_period_s=0)
        await until(lambda: running(client, "sleeper-local"), "mirror again")
        assert world.pid("pods/sleeper-local") == pid, "deleting the mirror does not touch the pod"
    finally:
        manifest.unlink()
    await until(lambda: gone(client, "sleeper-local"), "mirror gone")
    assert start_time_of(pid) is None


async def test_a_program_that_is_missing_is_said_in_the_status(world, client):
    body = stateful_set("missing", 1, replicas=1)
    body["spec"]["template"]["spec"]["containers"][0]["command"] = ["no-such-program"]
    await client.create(STATEFUL_SETS, "default", body)

    async def waiting():
        return (await container(client, "missing-0"))["state"].get("waiting", {}).get(
            "reason"
        ) == "CreateContainerError"

    try:
        await until(waiting, "reason")
    finally:
        await client.delete(STATEFUL_SETS, "default", "missing")
    await until(lambda: gone(client, "missing-0"), "gone")


async def test_what_kept_a_pod_from_running_is_over_when_everything_is_stopped(world, client, tmp_path):
    body = stateful_set("missing", 1, replicas=1)
    body["spec"]["template"]["spec"]["containers"][0]["command"] = ["no-such-program"]
    await client.create(STATEFUL_SETS, "default", body)

    async def reason(client):
        return (await container(client, "missing-0"))["state"].get("waiting", {}).get("reason")

    async def refused():
        return await reason(client) == "CreateContainerError"

    await until(refused, "reason")
    world.stop()
    server = ApiServer(world.home.database)
    await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", server.url, server.token)
    stored = KubeClient(KubeConfig.from_file(tmp_path / "kubeconfig"))
    try:
        assert await reason(stored) == "ContainerCreating", "the next `kafkalite up` would take it for its own"
    finally:
        await stored.close()
        await server.stop()
        world.start()
    await until(refused, "tried again")
    await client.delete(STATEFUL_SETS, "default", "missing")
    await until(lambda: gone(client, "missing-0"), "gone")


async def test_a_supervisor_that_is_told_to_stop_leaves_nothing_and_the_next_one_goes_on(world, client, pods):
    pids = [world.pid(name) for name in ("apiserver", "kubelet", *(f"pods/{each}" for each in pods))]
    os.kill(pids[-1], signal.SIGSTOP)
    world.stop()
    assert [start_time_of(pid) for pid in pids] == [None] * len(pids)
    world.start()
    for name in pods:
        status = await until(lambda name=name: running(client, name, restarts=1), name)
        assert status["lastState"]["terminated"]["reason"] == "Completed", "a frozen pod is woken to end, not killed"


async def test_a_killed_supervisor_is_replaced_by_one_that_adopts_everything(world, client, pods):
    names = ["apiserver", "kubelet", *(f"pods/{name}" for name in pods)]
    before = [world.pid(name) for name in names]
    world.supervisor.kill()
    world.supervisor.wait()
    assert all(start_time_of(pid) for pid in before)
    world.start()
    await until(lambda: world.pid("supervisor") == world.supervisor.pid, "supervisor")
    assert [world.pid(name) for name in names] == before
    old = world.kill("kubelet")
    await until(lambda: world.pid("kubelet") != old, "an adopted kubelet is restarted too")
