"""The load of a test, in a pod of its own: the clients of `kafkalite verify run`, which are told what happens.

    load.py run '{"bootstrap": …, "topic": …, "rate": …, "client": {…}}'      until the pod is deleted
    load.py tell '["fault", "SIGKILL of broker 1", [0, 3]]'       in the same container; prints the answer as JSON

It can be told
    ["fault", NAME, PARTITIONS]         the leader of these is about to be harmed; the answer is null
    ["count"]                           how many records were acknowledged so far
    ["acknowledged", COUNT, LIMIT_S]    wait for so many more acknowledgements; null
    ["served", PARTITIONS, LIMIT_S]     wait until each of them acknowledges a record that is sent from now on; null
    ["stop", LIMIT_S]                   end, read everything once more; the verdict, and the errors that clients saw
"""

import json
import socket
import socketserver
import sys
import time

PLACE = "/tmp/load.sock"
HISTORY = "/tmp/history.jsonl"
BEGIN_LIMIT_S = 120
CONNECT_LIMIT_S = BEGIN_LIMIT_S + 30


def run(settings):
    from pathlib import Path

    import msgspec

    from kafkalite_cli.verify.load import Load

    load = Load(settings["bootstrap"], settings["topic"], settings["rate"], history=Path(HISTORY),
                producer_config=settings["client"], consumer_config=settings["client"])  # fmt: skip

    def fault(name, partitions):
        load.fault(name, partitions)

    def count():
        return load.acks.count

    def acknowledged(count, limit_s):
        load.wait_acks(load.acks.count + count, limit_s)

    def served(partitions, limit_s):
        now_us = time.monotonic_ns() // 1000
        load.acks.watch(now_us, partitions)
        load.pauses_after(now_us / 1e6, partitions, limit_s)

    def stop(limit_s):
        load.stop(limit_s)
        return {**msgspec.to_builtins(load.report(), str_keys=True), "errors": load.errors, "seconds": seconds()}

    def seconds():
        return round(time.monotonic() - began, 1)

    commands = {"fault": fault, "count": count, "acknowledged": acknowledged, "served": served, "stop": stop}

    class Told(socketserver.StreamRequestHandler):
        def handle(self):
            try:
                name, *arguments = json.loads(self.rfile.readline())
                answer = {"answer": commands[name](*arguments)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.wfile.write(json.dumps(answer).encode())

    begin(load)
    began = time.monotonic()
    with socketserver.ThreadingUnixStreamServer(PLACE, Told) as server:
        server.serve_forever()


def begin(load):
    """As a client's application does, ask again while nobody answers.

    After the API server was away the control plane may call nodes dead that it has only not heard of yet: the bootstrap Service
    leads nowhere meanwhile.
    """
    from kafkalite_cli.verify.load import LoadError

    deadline = time.monotonic() + BEGIN_LIMIT_S
    while True:
        try:
            return load.start()
        except LoadError as error:
            if time.monotonic() > deadline:
                raise
            print(f"not begun yet: {error}", file=sys.stderr)
            time.sleep(0.5)


def tell(command):
    deadline = time.monotonic() + CONNECT_LIMIT_S
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            try:
                connection.connect(PLACE)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    sys.exit(f"nobody listens: {error}")
                time.sleep(0.1)
        connection.sendall(command.encode() + b"\n")
        answer = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    if "error" in answer:
        sys.exit(answer["error"])
    print(json.dumps(answer["answer"]))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(json.loads(sys.argv[2]))
    else:
        tell(sys.argv[2])
