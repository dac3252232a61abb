"""`kafkalite up`."""

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import os_words
from kafkalite_cli.local_mode import folder, processes, stop
from kafkalite_cli.local_mode.logs import last_lines, readable
from kafkalite_cli.local_mode.operator_manifest import BROKERS, write_operator_manifest
from kafkalite_cli.local_mode.outcomes import (
    ClustersNotReady,
    ManifestsRefused,
    NotReady,
    RunsAllTheSame,
    TopicsNotReady,
)
from kafkalite_cli.local_mode.progress import Steps
from kafkalite_cli.local_mode.readiness import Readiness, judge
from kafkalite_cli.manifests import QUICKSTART_TOPIC, Unanswered, apply, plain_words, read_manifests
from kafkalite_cli.snapshot import Snapshot, read_snapshot, topic_name
from kafkalite_runtime.home import (
    API_SERVER,
    DEFAULT_PORT,
    KUBELET,
    SUPERVISOR,
    Home,
    Ports,
    ProcessRecord,
    start_time_of,
    write_atomically,
)
from kafkalite_runtime.kube import NODES, KubeClient, KubeError, KubeUnavailable
from kafkalite_runtime.kube.config import KubeConfig

MINIMUM_PYTHON = (3, 11)
POLL_S = 0.1
REJUDGE_S = 2.0
CRASHES = 3
STABLE_S = 10.0
SECONDS = len("2026-01-31T12:00:00")
LOGGED_AT = re.compile(r'"ts": "([^"]{19})')
QUICKSTART = Path("examples/quickstart/topic.yaml")
JsonObject = dict[str, Any]


def up(home: Home, ports: Ports, files: Sequence[str], *, timeout_s: float, console: Console) -> None:
    """Start (or repair) the cluster and wait until every topic is ready.

    Raises:
        RunsAllTheSame: topics are not ready, manifests were refused or one of several clusters does not run, but the
            control plane, the operator and the other brokers run and go on.
        Failure: it could not be started; everything is stopped again, unless some of it had run before.
    """
    if sys.version_info < MINIMUM_PYTHON:
        raise Failure(
            f"Python {'.'.join(map(str, MINIMUM_PYTHON))} or newer is needed, this is {sys.version.split()[0]}"
        )
    quickstart = read_manifests(str(QUICKSTART)) if QUICKSTART.is_file() else [QUICKSTART_TOPIC]
    objects = [obj for file in files for obj in read_manifests(file)]
    with _one_at_a_time(home):
        running = processes.supervisor_alive(home) is not None
        ran_before = any(process.alive for process in processes.list_processes(home))
        ports = _settled_ports(home, ports)
        if running:
            console.print(f"KafkaLite is already running in {home.root}", highlight=False, soft_wrap=True)
        else:
            _check_ports(home, ports)
        try:
            started = time.monotonic()
            with Steps(console) as steps:
                if not running:
                    _launch(home, ports, steps)
                asyncio.run(_bring_up(home, quickstart, objects, steps, started + timeout_s, timeout_s))
        except RunsAllTheSame as error:
            console.print(summary(home, ports, error.headline), highlight=False, soft_wrap=True)
            raise
        except BaseException as error:
            raise _clean_up(home, error, ran_before=ran_before) from error
        console.print(summary(home, ports), highlight=False, soft_wrap=True)


@contextmanager
def _one_at_a_time(home: Home) -> Iterator[None]:
    try:
        folder.claim(home)
        lock = (home.root / folder.LOCK).open("w")
    except OSError as error:
        raise Failure(
            f"no cluster can be kept in {home.root} ({os_words(error)}); name a folder that may be written to in "
            "KAFKALITE_HOME"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"another `kafkalite up` is at work in {home.root}") from None
        yield


def _settled_ports(home: Home, ports: Ports) -> Ports:
    """A cluster keeps the ports that it was made with: they stand in its KafkaLiteCluster."""
    note = home.root / folder.PORT_NOTE
    if not note.is_file() or not home.database.is_file():
        return ports
    given, text = os.environ.get("KAFKALITE_PORT"), note.read_text(encoding="ascii", errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        if given:
            return ports
        raise Failure(
            f"{note} does not say with which port the cluster was made, as after an end in the middle of its writing: "
            f"set KAFKALITE_PORT to that of broker 0, {DEFAULT_PORT} if it was none other"
        )
    made_with = Ports(int(text))
    if given and made_with != ports:
        raise Failure(
            f"the cluster in {home.root} was made with KAFKALITE_PORT={made_with.base}; use that, or remove the "
            "cluster and its data with `kafkalite clean`"
        )
    return made_with


def _check_ports(home: Home, ports: Ports) -> None:
    """Every port that will be needed is free, or held by a process of this cluster that runs on unsupervised."""
    ours = {process.record.pid for process in processes.list_processes(home) if process.alive}
    needed = {ports.broker(n): f"broker {n}" for n in range(BROKERS)}
    needed |= {ports.broker_metrics(n): f"broker {n}'s metrics" for n in range(BROKERS)}
    needed |= {ports.operator_metrics: "the operator's metrics", ports.api_server: "the API server"}
    for port, user in needed.items():
        holder = processes.port_holder(port)
        if holder is not None and processes.port_holder_pid(port) not in ours:
            raise Failure(
                f"port {port}, needed for {user}, is in use by {holder}; free it or choose other ports with "
                f"KAFKALITE_PORT (now {ports.base})"
            )


def _launch(home: Home, ports: Ports, steps: Steps) -> None:
    steps.begin("Supervisor")
    beside = Path(sys.executable).with_name("kafkalite-local")
    program = str(beside) if beside.exists() else shutil.which("kafkalite-local")
    if program is None:
        raise Failure(
            "local mode is not installed, there is no program kafkalite-local: install KafkaLite with its extra, "
            "`make install` or `pip install '.[local]'` in a clone of it"
        )
    write_atomically(home.root / folder.PORT_NOTE, f"{ports.base}\n".encode())
    write_operator_manifest(home, ports)
    repaired = [process.name for process in processes.list_processes(home) if process.alive]
    with home.log(SUPERVISOR).open("ab") as log:
        child = subprocess.Popen(
            [program, SUPERVISOR, "--home", str(home.root), "--port-base", str(ports.base)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + 10
    while (record := processes.supervisor_alive(home)) is None:
        if child.poll() is not None or time.monotonic() > deadline:
            raise NotReady(f"the supervisor ended at once (exit code {child.poll()})", SUPERVISOR)
        time.sleep(0.02)
    assert start_time_of(record.pid) is not None
    steps.done("Supervisor" + (f", adopted {', '.join(repaired)}" if repaired else ""))


async def _bring_up(
    home: Home,
    quickstart: list[JsonObject],
    objects: list[JsonObject],
    steps: Steps,
    deadline: float,
    timeout_s: float,
) -> None:
    client = await _api_server(home, steps, deadline)
    try:
        refused = await _apply(client, quickstart, objects, steps)
        try:
            await _wait_until_ready(home, client, steps, deadline, timeout_s)
        except NotReady as error:
            raise NotReady("\n".join([*refused, error.message]), error.process) from error
        except TopicsNotReady as error:
            raise TopicsNotReady([*refused, *error.sentences]) from error
        except ClustersNotReady as error:
            raise ClustersNotReady([*refused, *error.sentences]) from error
        if refused:
            raise ManifestsRefused(refused)
    finally:
        await client.close()


async def _apply(
    client: KubeClient, quickstart: list[JsonObject], objects: list[JsonObject], steps: Steps
) -> list[str]:
    """Bring the manifests to the API server; a sentence for each that it refuses. Raises Failure when it is away.

    The quickstart topic is for who has nothing yet. Afterwards it is the user's, to change and to delete.
    """
    steps.begin("Manifests")
    try:
        known = await read_snapshot(client, None, pods=False)
    except (KubeError, KubeUnavailable) as error:
        raise NotReady(plain_words(error), API_SERVER) from error
    applied, refused = [], []
    for obj in objects if known.clusters or known.topics else quickstart + objects:
        try:
            applied += await apply(client, [obj])
        except Unanswered:
            raise
        except Failure as error:
            refused.append(error.message)
    if applied:
        steps.done(", ".join(applied))
    return refused


async def _api_server(home: Home, steps: Steps, deadline: float) -> KubeClient:
    steps.begin("Control plane")
    while True:
        reason = "waiting for the kubeconfig"
        if home.kubeconfig.is_file():
            client = KubeClient(KubeConfig.from_file(home.kubeconfig))
            try:
                await client.get(NODES, None, "local", deadline_s=1.0)
                steps.done("Control plane: API server and kubelet")
                return client
            except (KubeError, KubeUnavailable) as error:
                answers = isinstance(error, KubeError)
                reason = "waiting for the kubelet" if answers else "the API server does not answer yet"
            await client.close()
        steps.waiting(reason)
        _check_supervised(home)
        if time.monotonic() > deadline:
            raise NotReady(f"the control plane is not there in time: {reason}", API_SERVER)
        await asyncio.sleep(POLL_S)


def _check_supervised(home: Home) -> None:
    if processes.supervisor_alive(home) is None:
        raise NotReady("the supervisor has ended", SUPERVISOR)
    for name in (API_SERVER, KUBELET):
        log = home.log(name)
        record = processes.find(home, name)
        if record is not None and not record.alive and _crash_count(home, name) >= CRASHES:
            raise NotReady(f"the {name} keeps ending at once", name if log.exists() else SUPERVISOR)


def _crash_count(home: Home, name: str) -> int:
    """Ends in a row of a supervised process since this supervisor started, from the tail of its log.

    One that had run for a while begins a new row, as it does for the supervisor: what ended before it is over.
    """
    count, started = 0, None
    for line in of_this_start(home, last_lines(home.log(SUPERVISOR), 40)):
        if f'"process": "{name}"' not in line or (logged := LOGGED_AT.search(line)) is None:
            continue
        when = datetime.fromisoformat(logged[1])
        if '"msg": "ended"' in line:
            well = started is not None and (when - started).total_seconds() >= STABLE_S
            count, started = (1 if well else count + 1), None
        elif '"msg": "started"' in line or '"msg": "adopted"' in line:
            started = when
    return count


async def _wait_until_ready(home: Home, client: KubeClient, steps: Steps, deadline: float, timeout_s: float) -> None:
    pending = ["operator", "brokers", "topics"]
    titles = {"operator": "Operator", "brokers": "Brokers", "topics": "Topics"}
    steps.begin(titles[pending[0]])
    reason = ""
    crashed: dict[str, str] = {}
    state: Readiness | None
    since = time.monotonic()
    while pending:
        try:
            snapshot = await read_snapshot(client, None)
        except (KubeError, KubeUnavailable) as error:
            reason, state = plain_words(error), None
        else:
            state = judge(snapshot, container_alive=container_alive, began=_began(home))
            if state.fatal:
                process = processes.display_name(state.fatal[0])
                raise NotReady(f"{process}: {state.fatal[1]}", process)
            # One that ended and is not ready yet may be about to end again. With all brokers ready it is over.
            crashed = {cluster: told for cluster, told in crashed.items() if cluster in state.late}
            crashed |= {cluster: _of_cluster(cluster, *found) for cluster, found in state.crashed.items()}
            while pending and not _awaited(state, pending[0], time.monotonic() - since):
                if pending[0] == "topics" and state.to_correct:
                    raise TopicsNotReady([*crashed.values(), *state.to_correct])
                steps.done(_result(pending.pop(0), snapshot))
                since = time.monotonic()
                if pending:
                    steps.begin(titles[pending[0]])
            reason = _awaited(state, pending[0], time.monotonic() - since) if pending else ""
        if pending:
            steps.waiting(reason)
            _check_supervised(home)
            if time.monotonic() > deadline:
                raise _too_late(home, timeout_s, reason, state, crashed)
            await asyncio.sleep(POLL_S)
    if crashed:
        raise ClustersNotReady(list(crashed.values()))


def _too_late(
    home: Home, timeout_s: float, reason: str, state: Readiness | None, crashed: Mapping[str, str]
) -> Failure:
    """What the time was too short for. Where the brokers of another cluster are all ready, these are to go on."""
    prefix = f"not ready after {timeout_s:g} s: "
    if state is None:
        return NotReady(prefix + reason, API_SERVER)
    if state.operator or (state.brokers and not state.late):
        return NotReady(prefix + reason, "operator")
    if not state.late:
        return TopicsNotReady([*crashed.values(), prefix + reason])
    late = [
        (processes.display_name(record), prefix + why)
        for cluster, (record, why) in state.late.items()
        if cluster not in crashed
    ]
    if state.serving:
        told = [why + _logged(home, process) for process, why in late]
        return ClustersNotReady([*crashed.values(), *told, *state.to_correct])
    record, _why = next(iter(state.late.values()))
    return NotReady("\n".join([*crashed.values(), *(why for _process, why in late)]), processes.display_name(record))


def _logged(home: Home, process: str) -> str:
    return f" (`kafkalite logs {process}` tells more)" if home.log(process).is_file() else ""


def _of_cluster(cluster: str, record: str, why: str) -> str:
    process = processes.display_name(record)
    return f"cluster {cluster}: {process}: {why} (`kafkalite logs {process}` tells more)"


def _began(home: Home) -> str:
    """When the present supervisor began; empty when there is none."""
    record = ProcessRecord.read(home.record(SUPERVISOR))
    return record.started_at if record is not None else ""


def _awaited(state: Readiness, part: str, waited_s: float) -> str:
    """What a part of the cluster waits for, empty when it is ready or, for topics, when waiting longer is of no use.

    What stands in a topic's status may be from before the cluster was stopped, so the operator gets time to look anew.
    """
    if part == "topics" and not state.topics and state.to_correct and waited_s < REJUDGE_S:
        return state.to_correct[0]
    return str(getattr(state, part))


def _result(part: str, snapshot: Snapshot) -> str:
    if part == "operator":
        return "Operator"
    if part == "brokers":
        return f"Brokers: {', '.join(str(broker['spec']['brokerId']) for broker in snapshot.brokers)}"
    if not snapshot.topics:
        return "Topics: there are none"
    partitions = sum(len((topic.get("status") or {}).get("partitions") or {}) for topic in snapshot.topics)
    names = ", ".join(topic_name(topic) for topic in snapshot.topics[:5]) + (" …" if len(snapshot.topics) > 5 else "")
    return f"Topics: {names} ({partitions} partitions)"


def container_alive(container_id: str) -> bool:
    """Whether the process behind a containerID (`local://<pid>-<start time>`) runs."""
    pid, _, start_time = container_id.removeprefix("local://").partition("-")
    return pid.isdigit() and start_time.isdigit() and start_time_of(int(pid)) == int(start_time)


def of_this_start(home: Home, lines: list[str]) -> list[str]:
    """Without the lines that were logged before the present supervisor began; what has no time stays."""
    began = _began(home)[:SECONDS]
    return [line for line in lines if (match := LOGGED_AT.search(line)) is None or match[1] >= began]


def _clean_up(home: Home, error: BaseException, *, ran_before: bool) -> BaseException:
    """Stop everything, unless some of it had run before; the error with the last lines of the log that tells more."""
    tail: list[str] = []
    if isinstance(error, NotReady) and error.process:
        tail = readable(of_this_start(home, last_lines(home.log(error.process), 40)))[-15:]
    if isinstance(error, KeyboardInterrupt):
        goes_on = "what runs goes on, and `kafkalite down` stops it" if ran_before else "stopping everything again"
        click.echo(f"interrupted: {goes_on}", err=True)
    if not ran_before:
        stop.stop_all(home, timeout_s=20)
    if isinstance(error, Failure):
        log = f"\n\nLast lines of {home.log(error.process)}:\n" + "\n".join(tail) if tail else ""  # type: ignore[attr-defined]
        outcome = (
            "What runs was not stopped: `kafkalite down` does it." if ran_before else "Everything was stopped again."
        )
        return Failure(f"{error.message}{log}\n\n{outcome}")
    return error


def summary(home: Home, ports: Ports, headline: str = "KafkaLite is ready.") -> str:
    """Where everything is."""
    bootstrap = ",".join(f"127.0.0.1:{ports.broker(n)}" for n in range(BROKERS))
    metrics = [f"http://127.0.0.1:{ports.broker_metrics(n)}/metrics" for n in range(BROKERS)]
    root = home.root
    if root.is_relative_to(Path.cwd()):
        root = root.relative_to(Path.cwd())
    return f"""
[bold]{headline}[/bold]
  bootstrap   {bootstrap}
  kubeconfig  {root}/kubeconfig
  kubectl     kubectl --kubeconfig {root}/kubeconfig get klt,klc,klb
  metrics     {metrics[0]}
              {metrics[1]}
              {metrics[2]}
              http://127.0.0.1:{ports.operator_metrics}/metrics (operator)
  logs        {root}/logs/, or: kafkalite logs broker-0 -f
"""
