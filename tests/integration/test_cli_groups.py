"""`kafkalite topics|groups|produce|consume` against real brokers, as a user types them."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.integration.cluster import KAFKALITE

RECORDS = 300


def as_json(cluster, *arguments):
    return json.loads(cluster.run(*arguments, "-o", "json").stdout)


def groups(cluster, *arguments, **more):
    """With the addresses of the brokers, which spares the look at the API server: that is tested once, with `produce`."""
    return cluster.run("groups", *arguments, "-b", cluster.bootstrap, **more)


def described(cluster, group):
    [document] = json.loads(groups(cluster, "describe", group, "-o", "json").stdout)
    return document


def wait_for(look, timeout=30):
    """What `look` returns once it is true; the command line is all that there is to ask."""
    limit = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < limit, f"not within {timeout} s"
        time.sleep(0.2)
    return found


def start(cluster, *arguments, **more):
    return subprocess.Popen(
        [str(KAFKALITE), *arguments], env=cluster.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **more
    )


@pytest.fixture(scope="module")
def filled(shared_cluster, tmp_path_factory):
    """A topic of three partitions with 300 records, key and value of which say which."""
    name = "cli-groups"
    shared_cluster.run("topics", "create", name, "--partitions", "3", "--config", "min.insync.replicas=2")
    lines = tmp_path_factory.mktemp("cli") / "lines"
    lines.write_text("".join(f"k{number}:{number}\n" for number in range(RECORDS)))
    summary = json.loads(shared_cluster.run("produce", name, "-K", ":", "-f", str(lines), "-o", "json").stdout)
    assert (summary["sent"], summary["acknowledged"], summary["failed"]) == (RECORDS, RECORDS, 0)
    yield name
    shared_cluster.run("topics", "delete", name, "--yes")


def test_the_life_of_a_topic(cluster, topic_name):
    name = f"{topic_name}_Upper"
    made = cluster.run("topics", "create", name, "--partitions", "2", "--config", "retention.ms=3600000")
    assert made.stdout == f"topic {name} created (2 partitions, 3 replicas)\n"
    again = cluster.run("topics", "create", name, check=False)
    assert (again.returncode, again.stderr) == (1, f"Error: topic {name!r} already exists\n")
    [listed] = [each for each in as_json(cluster, "topics", "list") if each["name"] == name]
    assert (listed["partitions"], listed["inSync"], listed["ready"]) == (2, "6/6", True)

    cluster.run(
        "topics",
        "alter",
        name,
        "--partitions",
        "3",
        "--config",
        "segment.bytes=2048",
        "--delete-config",
        "retention.ms",
    )
    [document] = as_json(cluster, "topics", "describe", name)
    assert document["config"] == {"segment.bytes": "2048"}
    assert cluster.topic(document["object"])["spec"]["config"] == {"segment.bytes": "2048"}
    assert [entry["partition"] for entry in document["partitions"]] == [0, 1, 2]
    assert all(
        entry["leader"] == entry["replicas"][0] and sorted(entry["isr"]) == [0, 1, 2]
        for entry in document["partitions"]
    )
    fewer = cluster.run("topics", "alter", name, "--partitions", "1", check=False)
    assert (fewer.returncode, "can only grow" in fewer.stderr) == (1, True)

    unanswered = cluster.run("topics", "delete", name, check=False)
    assert (unanswered.returncode, "Delete topic" in unanswered.stderr) == (1, True)
    assert cluster.run("topics", "delete", name, "--yes").stdout == f"topic {name} deleted\n"
    assert name not in cluster.run("topics", "list", "-o", "name").stdout.splitlines()


def test_sizes_are_what_the_brokers_say(cluster, filled):
    def sized():
        """A broker that does not say in time how much it has is left out."""
        [document] = as_json(cluster, "topics", "describe", filled)
        return all(entry["sizeBytes"] is not None for entry in document["partitions"]) and document

    document = wait_for(sized)
    for entry in document["partitions"]:
        directory = cluster.log_directory(entry["leader"], filled, entry["partition"])
        assert entry["sizeBytes"] == sum(path.stat().st_size for path in directory.glob("*.log"))
    assert document["sizeBytes"] == sum(entry["sizeBytes"] for entry in document["partitions"]) > RECORDS


def test_records_survive_the_way_through_json(cluster, filled, topic_name):
    copy = f"{topic_name}-copy"
    cluster.run("topics", "create", copy)
    lines = cluster.run("consume", filled, "--from-beginning", "-e", "-o", "json", "-q").stdout
    done = subprocess.run(
        [str(KAFKALITE), "produce", copy, "-i", "json", "-q"],
        env=cluster.environment, input=lines, text=True, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    copied = cluster.run("consume", copy, "--from-beginning", "-e", "--print", "key", "--separator", ":", "-q").stdout
    assert sorted(copied.splitlines()) == sorted(f"k{number}:{number}" for number in range(RECORDS))
    last = cluster.run("consume", copy, "--offset", "-2", "-e", "-q").stdout.splitlines()
    assert last == [json.loads(line)["value"] for line in lines.splitlines()[-2:]]
    cluster.run("topics", "delete", copy, "--yes")


def test_a_group_from_its_first_record_to_its_end(cluster, filled):
    group = f"{filled}-group"
    first = cluster.run("consume", filled, "--group", group, "--from-beginning", "-c", "100", "--timeout", "30")
    assert len(first.stdout.splitlines()) == 100
    assert "; lag 200" in first.stderr
    document = described(cluster, group)
    assert (document["state"], document["members"]) == ("Empty", [])
    assert sum(entry["committed"] for entry in document["partitions"]) == 100
    assert all(entry["lag"] == entry["logEnd"] - entry["committed"] for entry in document["partitions"])

    rest = cluster.run("consume", filled, "--group", group, "--from-beginning", "-e").stdout
    read = first.stdout.splitlines() + rest.splitlines()
    assert sorted(map(int, read)) == list(range(RECORDS)), "each record once, over both runs"
    assert group in groups(cluster, "list", "-o", "name").stdout.splitlines()
    before = described(cluster, group)
    assert before["totalLag"] == 0
    cluster.kill(before["coordinator"]["id"])
    after = described(cluster, group)["partitions"]
    committed = [[entry["committed"] for entry in entries] for entries in (after, before["partitions"])]
    assert committed[0] == committed[1], "the offsets outlive their coordinator"

    # It led partitions as well: as long as a broker does not know the next leader, their end is not known either.
    def ended():
        found = described(cluster, group)["partitions"]
        return all(entry["logEnd"] is not None for entry in found) and found

    assert wait_for(ended) == before["partitions"]

    reset = ("reset-offsets", group, "--topic", filled)
    assert "dry run" in groups(cluster, *reset, "--to-earliest").stderr
    assert described(cluster, group)["totalLag"] == 0
    moves = json.loads(groups(cluster, *reset, "--shift-by", "-10", "--execute", "-o", "json").stdout)
    assert [move["before"] - move["after"] for move in moves] == [10, 10, 10]
    assert described(cluster, group)["totalLag"] == 30
    groups(cluster, *reset, "--to-earliest", "--execute")
    assert described(cluster, group)["totalLag"] == RECORDS

    assert groups(cluster, "delete-offsets", group, "--topic", f"{filled}:0,1", "--yes").stdout.count("deleted") == 2
    assert [entry["partition"] for entry in described(cluster, group)["partitions"]] == [2]
    groups(cluster, "delete", group, "--yes")
    gone = groups(cluster, "describe", group, check=False)
    assert (gone.returncode, gone.stderr) == (1, f"Error: group {group!r} does not exist\n")


def test_a_live_group_is_described_and_protected_and_left_in_order(cluster, filled):
    group = f"{filled}-live"
    consumer = start(
        cluster,
        "consume",
        filled,
        "-g",
        group,
        "--from-beginning",
        "-X",
        "client.id=one",
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert consumer.stdout is not None
    try:
        lines = [consumer.stdout.readline() for _ in range(RECORDS)]  # so it has read them all when it is interrupted

        def settled():
            found = groups(cluster, "describe", group, "-o", "json", check=False)
            documents = json.loads(found.stdout) if found.returncode == 0 else []
            return (
                documents
                and documents[0]["state"] == "Stable"
                and len(documents[0]["partitions"]) == 3
                and documents[0]
            )

        document = wait_for(settled)
        assert {entry["clientId"] for entry in document["partitions"]} == {"one"}
        [member] = document["members"]
        assert [each["partition"] for each in member["partitions"]] == [0, 1, 2]
        refused = cluster.run(
            "groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute", check=False
        )
        assert (refused.returncode, "is Stable with 1 members" in refused.stderr) == (1, True)
        refused = groups(cluster, "delete", group, "--yes", check=False)
        assert (refused.returncode, "NON_EMPTY_GROUP" in refused.stderr) == (1, True)
        refused = groups(cluster, "delete-offsets", group, "--topic", filled, "--yes", check=False)
        assert refused.returncode == 1
    finally:
        consumer.send_signal(signal.SIGINT)
        output, errors = consumer.communicate(timeout=30)
    assert consumer.returncode == 130, errors
    assert all(lines)
    assert output == b""
    document = described(cluster, group)
    assert (document["state"], document["totalLag"]) == ("Empty", 0), "left at once, and everything is committed"
    groups(cluster, "delete", group, "--yes")


def test_a_closed_pipe_ends_it_without_a_word(cluster, topic_name):
    cluster.run("topics", "create", topic_name)
    send = [str(KAFKALITE), "produce", topic_name, "-q", "-b", cluster.bootstrap]
    subprocess.run(send, input=b"first\n", env=cluster.environment, timeout=60, check=True)
    consumer = start(cluster, "consume", topic_name, "--from-beginning", stdout=subprocess.PIPE)
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == b"first\n"
    consumer.stdout.close()
    # The next record has nobody to go to.
    subprocess.run(send, input=b"second\n", env=cluster.environment, timeout=60, check=True)
    _, errors = consumer.communicate(timeout=30)
    assert (consumer.returncode, errors) == (141, b"")
    cluster.run("topics", "delete", topic_name, "--yes")


def test_clients_need_no_api_server(cluster, filled):
    pid = cluster.pid("apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        read = cluster.run("consume", filled, "--from-beginning", "-c", "5", "-q")
        assert len(read.stdout.splitlines()) == 5
    finally:
        os.kill(pid, signal.SIGCONT)
