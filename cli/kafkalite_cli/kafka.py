"""The Kafka side of the command line: which brokers, librdkafka's settings, and its errors in plain words."""

from __future__ import annotations

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from kafkalite_cli.errors import Failure
from kafkalite_runtime.home import API_SERVER_OFFSET, Ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError

    from kafkalite_cli.connection import Target
    from kafkalite_cli.options import KafkaOptions, KubeOptions
    from kafkalite_cli.pasting import Commands

CLIENT_ID = "kafkalite-cli"
API_DEADLINE_S = 3.0
CONNECT_S = 2.0
METADATA_S = 10.0
UNKNOWN_TOPIC_S = 2.0  # how long a topic that was made just now may be unknown to the broker that is asked
POLL_UNIT_S = 0.001
SERVE_S = 0.1
LOCAL_BROKERS = 3
DEFAULT_PORT = 9092
NOT_RUNNING = "is the cluster running? (`kafkalite up` starts it)"


class Brokers(NamedTuple):
    """Where brokers are asked for, and what is said to the user about them.

    Attributes:
        bootstrap: Addresses.
        hint: What to do when nobody listens there.
        say: Commands that reach the cluster of these brokers; None when nobody knows which one that is.
    """

    bootstrap: str
    hint: str = ""
    say: Commands | None = None


def brokers_of(options: KafkaOptions) -> Brokers:
    """`--bootstrap`, else what the API server says; the addresses are checked for somebody who listens.

    Raises Failure.
    """
    from kafkalite_cli.options import KubeOptions
    from kafkalite_cli.pasting import Commands

    named = options.bootstrap or options.properties.get("bootstrap.servers")
    if named:
        found = Brokers(named, say=Commands.of(options.kube) if options.kube != KubeOptions() else None)
    else:
        found = find_bootstrap(options.kube)
    check_reachable(found.bootstrap, hint=found.hint)
    return found


def find_bootstrap(kube: KubeOptions) -> Brokers:
    """`status.bootstrap` of the KafkaLiteCluster, or of a local cluster without API server where its brokers listen.

    Raises Failure when there is no cluster, or several.
    """
    from kafkalite_cli.connection import choose_target, scope_of, with_client
    from kafkalite_cli.manifests import plain_words
    from kafkalite_cli.pasting import Commands
    from kafkalite_runtime.kube import CLUSTERS, KubeClient, KubeError, KubeUnavailable

    try:
        target = choose_target(kube)
    except Failure as error:
        raise Failure(f"{error.message}; or name the brokers with --bootstrap HOST:PORT") from error
    say = Commands.of(kube)

    async def read(client: KubeClient) -> tuple[str | None, str, list[dict[str, Any]]]:
        space = scope_of(target, client, kube)
        return space, client.config.namespace, (await client.list(CLUSTERS, space, deadline_s=API_DEADLINE_S)).items

    try:
        space, usual, items = with_client(target, read)
    except KubeUnavailable as error:
        if target.home is not None:  # clients do not need the API server, so neither does this
            return Brokers(local_bootstrap(target), NOT_RUNNING, say)
        raise Failure(f"{plain_words(error)}; name the brokers with --bootstrap HOST:PORT") from error
    except KubeError as error:
        raise Failure(plain_words(error)) from error
    clusters = [each for each in items if kube.cluster in {None, each["metadata"]["name"]}]
    if not clusters:
        if target.home is not None and kube.cluster is None and kube.namespace is None:
            return Brokers(local_bootstrap(target), NOT_RUNNING, say)
        which = f" {kube.cluster!r}" if kube.cluster else ""
        where = f"namespace {space}" if space else "any namespace"
        raise Failure(f"there is no KafkaLiteCluster{which} in {where}; name the brokers with --bootstrap HOST:PORT")
    if len(clusters) > 1:
        names = ", ".join(f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}" for each in clusters)
        raise Failure(f"there are several clusters ({names}): choose with --namespace, --cluster or --bootstrap")
    metadata = clusters[0]["metadata"]
    bootstrap = (clusters[0].get("status") or {}).get("bootstrap")
    if not bootstrap:
        raise Failure(f"KafkaLiteCluster {metadata['name']} has no status.bootstrap yet; try again")
    say = say.making(str(metadata.get("namespace") or usual), str(metadata["name"]), usual=usual)
    return Brokers(str(bootstrap), NOT_RUNNING if target.home is not None else _from_outside(clusters[0]), say)


def _from_outside(cluster: dict[str, Any]) -> str:
    status = cluster["status"]  # its bootstrap is that of the first listener, which is the brokers' own
    for listener in status.get("listeners") or []:
        servers = listener.get("bootstrapServers")
        if servers and servers != status["bootstrap"]:
            name = listener["name"]
            return f"these are for clients inside of Kubernetes; try its listener {name}: --bootstrap {servers}"
    return (
        "do its brokers run, and can these names be reached from here? Clients outside of Kubernetes need --bootstrap "
        "with addresses that lead there, or a nodeport or loadbalancer listener of the cluster"
    )


def local_bootstrap(target: Target) -> str:
    """Where the brokers of a local cluster listen: all its ports follow the API server's."""
    from kafkalite_runtime.kube.config import KubeConfig

    assert target.kubeconfig is not None
    port = urlsplit(KubeConfig.from_file(target.kubeconfig).server).port
    ports = Ports(port - API_SERVER_OFFSET) if port else Ports()
    return ",".join(f"127.0.0.1:{ports.broker(number)}" for number in range(LOCAL_BROKERS))


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port`, `PLAINTEXT://host:port` or `host`. Raises Failure."""
    text = address.strip()
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as a look-up of the name does: UnicodeError for an empty or endless label
    except ValueError:
        host, port = None, None
    if not host:
        raise Failure(f"{address!r} is not an address (host:port)")
    return host, port or DEFAULT_PORT


def check_reachable(bootstrap: str, *, hint: str = "") -> None:
    """Raises Failure when none of the addresses takes a connection: librdkafka would try again until it times out."""
    addresses = [split_address(each) for each in bootstrap.split(",") if each.strip()]
    if not addresses:
        raise Failure("--bootstrap names no address")

    def attempt(address: tuple[str, int]) -> str:
        try:
            socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError as error:
            return f"{address[0]}:{address[1]}: {error.strerror or error}"
        return ""

    with ThreadPoolExecutor(min(len(addresses), 8)) as pool:
        problems = list(pool.map(attempt, addresses))
    if all(problems):
        raise Failure(f"no broker can be reached ({'; '.join(problems)})" + (f": {hint}" if hint else ""))


def client_config(bootstrap: str, properties: dict[str, str]) -> dict[str, Any]:
    """Settings for any client; what the user gave goes last and wins."""
    return {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, "log_level": 2, **properties}


def sentence(error: KafkaError) -> str:
    """`Unknown topic or partition (UNKNOWN_TOPIC_OR_PART)`."""
    said = str(error.str())
    for prefix in ("Unable to produce message: ", "Broker: ", "Local: "):
        said = said.removeprefix(prefix)
    return f"{said} ({error.name()})"


def serve(client: Serving, limit_s: float) -> None:
    """Call back what is due, and wait for more, `limit_s` at the longest and never longer than a tenth of a second.

    librdkafka waits whole milliseconds: asked for less it does not wait at all, and who asks again and again spins.
    """
    if 0 < limit_s < POLL_UNIT_S:
        time.sleep(limit_s)
        limit_s = 0.0
    client.poll(min(limit_s, SERVE_S))


@contextlib.contextmanager
def plain_errors(what: str = "") -> Iterator[None]:
    """Raise Failure instead of KafkaException, and for settings that librdkafka does not take."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        yield
    except KafkaException as error:
        said = error.args[0] if error.args else None
        words = sentence(said) if isinstance(said, KafkaError) else str(error)
        raise Failure(f"{what}: {words}" if what else words) from error


def final_codes() -> set[int]:
    """Answers that asking again does not change. The client calls no error of metadata or offsets retriable."""
    from confluent_kafka import KafkaError

    return {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }


class Serving(Protocol):
    """A producer or a consumer of confluent-kafka."""

    def poll(self, timeout: float, /) -> Any:
        """Call back."""


class HasMetadata(Protocol):
    """A producer, consumer or admin client."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of one topic, or of all."""


def partitions_of(
    client: HasMetadata, topic: str, *, timeout_s: float = METADATA_S, say: Commands | None = None
) -> list[int]:
    """Numbers of a topic's partitions, ascending. Raises Failure when there is no such topic; `say` could make it."""
    from confluent_kafka import KafkaError

    limit = time.monotonic() + timeout_s
    unknown_limit = time.monotonic() + UNKNOWN_TOPIC_S
    while True:
        with plain_errors("no answer from the brokers"):
            known = client.list_topics(topic, timeout=timeout_s).topics.get(topic)
        error = known.error if known is not None else None
        if known is not None and error is None and known.partitions:
            return sorted(known.partitions)
        now = time.monotonic()
        unknown = error is None or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        hopeless = error is not None and error.code() in final_codes()
        if hopeless or now > (unknown_limit if unknown else limit):
            if unknown:
                make = f" (`{say.kafkalite(f'topics create {topic}')}` makes it)" if say is not None else ""
                raise Failure(f"topic {topic!r} does not exist{make}")
            assert error is not None
            raise Failure(f"topic {topic!r}: {sentence(error)}")
        time.sleep(0.1)
