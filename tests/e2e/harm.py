"""What the tests do to pods, nodes and the API server."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.cluster.kind import cluster as kind
from tests.cluster.processes import StartError
from tests.e2e.cluster import CLIENT, PATIENCE, client_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.kind.cluster import Docker
    from tests.e2e.cluster import Cluster

KILLER = "killer"
CONTROL_PLANE = f"{kind.NAME}-control-plane"
CALL_LIMIT_S = 120
FREEZE_TRIES = 5
MANIFESTS = "/etc/kubernetes/manifests"
ETCD = "/var/lib/etcd"
SNAPSHOT = "/var/lib/etcd-snapshot"
CONTROL_PLANE_PODS = "etcd kube-apiserver kube-controller-manager kube-scheduler"
AWAIT_END = "for i in $(seq 300); do pidof {programs} >/dev/null || exit 0; sleep 0.2; done; exit 1"
# What keeps watching from a version that the store has not reached any more would wait for it in silence. Containers are
# started again by the kubelet.
RESTART_AGENTS = "systemctl restart kubelet; kill $(pidof kube-proxy addons)"


class Killer:
    """A privileged pod on every node, since nothing else can kill or stop the first process of a container."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def install(self) -> None:
        """Returns when it is on every node."""
        self.cluster.apply(killer_set())
        seconds = 60 * PATIENCE
        words = ("rollout", "status", f"daemonset/{KILLER}", f"--timeout={seconds:.0f}s")
        self.cluster.kubectl(*words, limit_s=seconds + 30)

    def signal(self, name: str, *pods: str) -> None:
        """Send a signal to the programs of brokers and operators, to all at the same moment."""
        calls = [self._start(pod, name) for pod in pods]
        for call in calls:
            said, _ = call.communicate(timeout=CALL_LIMIT_S)
            assert call.returncode == 0, said

    def _start(self, pod: str, name: str) -> subprocess.Popen[str]:
        found = self.cluster.get(f"pod/{pod}")
        program = f"kafkalite-{found['metadata']['labels']['app.kubernetes.io/component']}"
        node = found["spec"]["nodeName"]
        killers = self.cluster.items("pods", f"--selector=app={KILLER}", f"--field-selector=spec.nodeName={node}")
        source = (CLIENT / "kill.py").read_text()
        words = ("python3", "-c", source, found["metadata"]["uid"], program, name)
        return self.cluster.start(killers[0]["metadata"]["name"], *words)


def killer_set() -> dict[str, Any]:
    """The DaemonSet of the killers."""
    template = client_pod(KILLER)
    [container] = template["spec"]["containers"]
    spec = {
        "terminationGracePeriodSeconds": 0,
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{**container, "securityContext": {"privileged": True, "runAsUser": 0}}],
    }
    labels = {"app": KILLER}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": KILLER},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


class Nodes:
    """The nodes of our kind cluster, which are containers of Docker."""

    def __init__(self, docker: Docker, cluster: Cluster) -> None:
        self._environment = docker.environment()
        self._beside = docker.beside_nodes()
        self.cluster = cluster

    @classmethod
    def of(cls, cluster: Cluster) -> Nodes | None:
        """None for a cluster that `make kind-up` did not make: its nodes are not ours to harm."""
        docker = kind.used()
        with suppress(StartError):
            if docker.running() and kind.NAME in kind.clusters(docker) and cluster.get(f"node/{CONTROL_PLANE}"):
                return cls(docker, cluster)
        return None

    def docker(self, *arguments: str) -> str:
        """The standard output of docker."""
        return kind.call("docker", *arguments, environment=self._environment, limit_s=CALL_LIMIT_S)

    def outside(self, program: str, *arguments: str) -> str:
        """What a program of the folder `client` prints beside the nodes: it reaches their addresses, but no pod or Service."""
        words = [*self._beside, sys.executable, str(CLIENT / program), *arguments]
        return kind.call(*words, limit_s=CALL_LIMIT_S * PATIENCE)

    @contextmanager
    def paused(self, node: str, *, new_agents: bool = False) -> Iterator[None]:
        """Nothing on the node runs, and its connections stay open. `new_agents`: see `restart_agents`."""
        self._freeze(node)
        try:
            yield
        finally:
            self.docker("unpause", node)
            if new_agents:
                self.restart_agents(node)
            self._ready(node)

    def _freeze(self, node: str) -> None:
        """Pause a node. With cgroup v1 that is a matter of luck while its processes fork, so runc leaves it to its callers
        to try again (opencontainers/runc#4388); it thaws what it did not get.
        """
        for left in reversed(range(FREEZE_TRIES)):
            try:
                self.docker("pause", node)
                return
            except StartError as error:
                if left == 0 or "unable to freeze" not in str(error):
                    raise

    @contextmanager
    def stopped(self, node: str) -> Iterator[None]:
        """The node is shut down, then started."""
        self.docker("stop", node)
        try:
            yield
        finally:
            self.docker("start", node)
            self._ready(node)

    @contextmanager
    def api_server_stopped(self) -> Iterator[None]:
        """The API server ends in order, since the kubelet does not find its manifest any more.

        It takes its endpoint off before, and every node learns of the next one by its kube-proxy, which asks again after up
        to half a minute: some brokers are silent for longer than others.
        """
        with self._without_api_server(f"mv {MANIFESTS}/kube-apiserver.yaml /etc/kubernetes/"):
            yield

    @contextmanager
    def api_server_killed(self) -> Iterator[None]:
        """The API server ends without a word."""
        end = f"mv {MANIFESTS}/kube-apiserver.yaml /etc/kubernetes/ && kill -KILL $(pidof kube-apiserver)"
        with self._without_api_server(end):
            yield

    @contextmanager
    def _without_api_server(self, end: str) -> Iterator[None]:
        self._control_plane(end)
        try:
            self._control_plane(AWAIT_END.format(programs="kube-apiserver"))
            yield
        finally:
            self._control_plane(f"mv /etc/kubernetes/kube-apiserver.yaml {MANIFESTS}/")
            self._api_answers()

    @contextmanager
    def api_server_hung(self) -> Iterator[None]:
        """The API server's process stops, and its connections stay open."""
        self._control_plane("kill -STOP $(pidof kube-apiserver)")
        try:
            yield
        finally:
            self._control_plane("kill -CONT $(pidof kube-apiserver)")
            self._api_answers()

    def back_up_etcd(self) -> None:
        """Keep what etcd has on its disk now, in the place of the snapshot before."""
        copy = f"rm -rf {SNAPSHOT}; cp -a {ETCD} {SNAPSHOT}; result=$?"
        # `kill` returns before its threads stand still.
        stop = (
            "etcd=$(pidof etcd); kill -STOP $etcd; while grep -q '^State:.[DRS]' /proc/$etcd/task/*/status; do :; done"
        )
        self._control_plane(f"{stop}; {copy}; kill -CONT $etcd; exit $result")

    def restore_etcd(self) -> None:
        """Go back to the snapshot, as Kubernetes asks for it: the control plane is stopped meanwhile.

        The agents of nodes are to be restarted afterwards: `restart_agents`.
        """
        away = "/etc/kubernetes/stopped"
        self._control_plane(f"mv {MANIFESTS} {away} && mkdir {MANIFESTS}")
        try:
            self._control_plane(AWAIT_END.format(programs=CONTROL_PLANE_PODS))
            self._control_plane(f"rm -rf {ETCD}/member && mv {SNAPSHOT}/member {ETCD}/")
        finally:
            self._control_plane(f"mv {away}/* {MANIFESTS}/ && rmdir {away}")
        self._api_answers()

    def restart_agents(self, node: str) -> None:
        """The kubelet and what leads packets; pods go on. After etcd went back: theirs is a cache of what is no more."""
        self._on(node, RESTART_AGENTS)

    def _control_plane(self, script: str) -> None:
        self._on(CONTROL_PLANE, script)

    def _on(self, node: str, script: str) -> None:
        self.docker("exec", node, "sh", "-c", script)

    def _ready(self, node: str) -> None:
        self.cluster.wait("condition=Ready", f"node/{node}", limit_s=120)

    def _api_answers(self) -> None:
        def answers() -> bool:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                self.cluster.kubectl("get", "--raw=/readyz", limit_s=5)
                return True
            return False

        self.cluster.until(answers, "the API server answers", 120)
