"""etcd, kube-apiserver and kube-controller-manager as child processes: a cluster without nodes, for one test run.

Everything is in one folder; nothing is written anywhere else, and every port is on loopback. What a user of a
real cluster meets is as there: TLS, no anonymous requests, RBAC, service accounts with tokens that expire,
admission, garbage collection. Only durability is not: etcd does not flush.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kafkalite_local.pytest_plugin import free_ports
from tests.cluster.processes import Program, StartError
from tests.stopping import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
READY_LIMIT_S = 120.0  # a few seconds on a quiet machine
POLL_S = 0.05
SERVICE_NETWORK = "10.96.0.0/16"  # room for the Services of some thousand clusters
# kubeadm puts an address that is no loopback into the certificate; nothing listens there (RFC 5737).
UNUSED_ADDRESS = "192.0.2.1"
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "persistentvolumeclaim-protection-controller",  # takes off the finalizer that admission puts on
)


def programs() -> Path:
    """The folder with the programs of Kubernetes. Raises StartError when they are not built."""
    required = (ROOT / "tools" / "kubernetes" / "go.mod").read_text().split()
    version = required[required.index("k8s.io/kubernetes") + 1]
    folder = ROOT / ".cache" / "kubernetes" / version
    if not (folder / "kube-apiserver").exists():
        raise StartError(f"Kubernetes {version} is not built: run `make kubernetes` (once; some ten minutes)")
    return folder


class ControlPlane:
    """One control plane in one folder. `start()` in a thread that lives as long as it shall."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.etcd_url = ""
        self._say = say
        self._pki = folder / "pki"
        self._running: list[Program] = []
        self._programs = programs()
        self._began = 0.0

    def start(self) -> float:
        """Start everything, with the project's definitions established. Returns the seconds that it took.

        Raises:
            StartError: something did not come up; what had come up is stopped again.
        """
        self._began = time.monotonic()
        try:
            self._prepare()
            self._start_etcd_and_apiserver()
            self._install_definitions()
            # The garbage collector looks for new kinds every 30 s only: it has to find these when it starts.
            self._start_controllers()
        except BaseException:
            self.stop()
            raise
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Stop everything, in the reverse order. The folder stays."""
        while self._running:
            self._running.pop().stop()

    def check(self) -> None:
        """Raises StartError when one of the programs has ended."""
        for program in self._running:
            program.check()

    def pid(self, name: str) -> int:
        """The process of one of the programs."""
        return self._program(name).process.pid

    def back_up(self, folder: Path) -> None:
        """A snapshot of what etcd has on its disk now."""
        etcd = self._program("etcd")
        try:
            stop(etcd.process.pid)  # nobody writes meanwhile
            shutil.copytree(self.folder / "etcd", folder)
        finally:
            etcd.process.send_signal(signal.SIGCONT)

    def restore(self, folder: Path) -> None:
        """Go back to a snapshot: the API server is stopped meanwhile, as the procedure asks for; its clients are not."""
        for name in ("kube-apiserver", "etcd"):
            program = self._program(name)
            self._running.remove(program)
            program.stop()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(folder, self.folder / "etcd")
        self._start_etcd_and_apiserver()

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as the administrator; what it printed. Raises StartError with its complaint."""
        return self._call("kubectl", "--kubeconfig", str(self.kubeconfig), *arguments)

    # -- its parts -----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Certificates, tokens and kubeconfigs."""
        (self.folder / "logs").mkdir(parents=True, mode=0o700)
        ports = free_ports()
        self._etcd_port, self._peer_port, self._api_port = ports.broker(0), ports.broker(1), ports.api_server
        self.etcd_url = f"http://127.0.0.1:{self._etcd_port}"
        self._make_certificates()
        self._tokens = {"admin": secrets.token_urlsafe(32), "controller-manager": secrets.token_urlsafe(32)}
        self._write("tokens.csv", f'{self._tokens["admin"]},admin,admin,"system:masters"\n'
                    f'{self._tokens["controller-manager"]},system:kube-controller-manager,controller-manager\n')  # fmt: skip
        self._write_kubeconfig(self.kubeconfig, "admin")
        self._write_kubeconfig(self.folder / "controller-manager.kubeconfig", "controller-manager")
        self._tell("certificates, tokens and kubeconfig")

    def _make_certificates(self) -> None:
        """By kubeadm, as on a real cluster: authorities, the API server's certificate, keys of service accounts."""
        local = {"advertiseAddress": UNUSED_ADDRESS, "bindPort": self._api_port}
        version = self._programs.name
        documents: list[dict[str, Any]] = [
            {"kind": "InitConfiguration", "localAPIEndpoint": local, "nodeRegistration": {"name": "localhost"}},
            {"kind": "ClusterConfiguration", "kubernetesVersion": version, "encryptionAlgorithm": "ECDSA-P256",
             "certificatesDir": str(self._pki), "networking": {"serviceSubnet": SERVICE_NETWORK},
             "apiServer": {"certSANs": ["127.0.0.1", "localhost"]}},
        ]  # fmt: skip
        text = yaml.safe_dump_all({"apiVersion": "kubeadm.k8s.io/v1beta4", **document} for document in documents)
        config = self._write("kubeadm.yaml", text)
        self._call("kubeadm", "init", "phase", "certs", "all", "--config", str(config))

    def _start_etcd_and_apiserver(self) -> None:
        peer_url = f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--watch-progress-notify-interval=5s",  # as kubeadm sets it: bookmarks are not older than that
            "--log-level=warn",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
        )
        pki = self._pki
        self._run(
            "kube-apiserver",
            f"--etcd-servers={self.etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._api_port}",
            "--endpoint-reconciler-type=none",  # a loopback address is no endpoint
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--anonymous-auth=false",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
        )
        self._await("the API server", self._api_server_is_ready)
        self._tell("etcd and kube-apiserver")

    def _install_definitions(self) -> None:
        self.kubectl("create", "--validate=false", "-f", str(ROOT / "crds"))
        self.kubectl(
            "wait", "--for=condition=Established", "customresourcedefinitions", "--all", f"--timeout={READY_LIMIT_S}s"
        )
        self._tell("custom resource definitions established")

    def _start_controllers(self) -> None:
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.folder / 'controller-manager.kubeconfig'}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials",  # the roles of the controllers are bound to their service accounts
            f"--service-account-private-key-file={self._pki / 'sa.key'}",
            f"--root-ca-file={self._pki / 'ca.crt'}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._await("the service account of namespace default", self._service_account_is_there)
        self._tell("kube-controller-manager")

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _program(self, name: str) -> Program:
        return next(program for program in self._running if program.name == name)

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(self._programs / name), *arguments]
        self._running.append(Program(name, command, self.folder / "logs" / f"{name}.log"))

    def _call(self, name: str, *arguments: str) -> str:
        environment = {**os.environ, "HOME": str(self.folder)}  # caches of kubectl
        done = subprocess.run(
            [str(self._programs / name), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=READY_LIMIT_S,
            check=False,
            env=environment,
        )
        if done.returncode != 0:
            raise StartError(f"{name} {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {program.log}\n{program.last_words()}" for program in self._running)
                raise StartError(f"{what} was not there within {READY_LIMIT_S:.0f} s\n{logs}")
            time.sleep(POLL_S)

    def _get(self, path: str) -> int:
        """The status of a GET as the administrator; 0 without an answer."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._api_port}{path}", headers={"Authorization": f"Bearer {self._tokens['admin']}"}
        )
        context = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def _api_server_is_ready(self) -> bool:
        return self._get("/readyz") == 200

    def _service_account_is_there(self) -> bool:
        return self._get("/api/v1/namespaces/default/serviceaccounts/default") == 200

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def _write_kubeconfig(self, path: Path, user: str) -> None:
        authority = base64.b64encode((self._pki / "ca.crt").read_bytes()).decode()
        server = f"https://127.0.0.1:{self._api_port}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        self._write(path.name, yaml.safe_dump(document))

    def _tell(self, what: str) -> None:
        self._say(f"{time.monotonic() - self._began:5.1f} s  {what}")


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """A control plane below `folder`, which is gone afterwards."""
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
        plane.check()
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)
