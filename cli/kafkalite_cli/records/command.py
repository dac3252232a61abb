"""`kafkalite produce` and `kafkalite consume`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import stoppable
from kafkalite_cli.options import KafkaOptions, NonEmpty, kafka_options, pairs
from kafkalite_cli.output import note, print_json, warn
from kafkalite_cli.records.meter import Meter, rate_text
from kafkalite_cli.records.parse import LineError, LineFormat, parse_json
from kafkalite_cli.records.show import FIELDS, JsonFormat, TextFormat

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from kafkalite_cli.records.consume import Inbox

ALL = ("all", "-1")
ESCAPES = {r"\t": "\t", r"\n": "\n", r"\0": "\0", r"\\": "\\"}
progress_option = click.option(
    "--progress/--no-progress", default=None, help="Show how far it is on standard error. Default: on a terminal."
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No summary at the end.")


def _text(value: str) -> bytes:
    r"""What was typed, with \t, \n, \0 and \\ meaning what they mean everywhere; other backslashes stay."""
    return os.fsencode(re.sub(r"\\[tn0\\]", lambda found: ESCAPES[found.group()], value))


# --- produce ---------------------------------------------------------------------------------------------------------


def make_producer(config: dict[str, Any]) -> Producer:
    """Tests put another in its place."""
    from confluent_kafka import Producer

    return Producer(config)


@click.command()
@kafka_options
@click.argument("topic", metavar="TOPIC")
@click.option(
    "-f", "--file", "source", type=click.File("rb"), default="-", help="Read this file. Default: standard input."
)
@click.option("-K", "--key-separator", metavar="TEXT", help=r"A line is key, TEXT, value; \t is a tab.")
@click.option("-k", "--key", metavar="TEXT", help="Key of all records, as it stands there.")
@click.option(
    "-H", "--header", "header_pairs", callback=pairs, multiple=True, metavar="NAME=VALUE", help="Header of all records."
)
@click.option("--headers", "line_headers", is_flag=True, help="A line begins with name:value,name:value and a tab.")
@click.option("--null-marker", metavar="TEXT", help="A key or value of just this text is null: a tombstone.")
@click.option(
    "-i",
    "--input",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="json: as `consume -o json` writes.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Default: by key, as Kafka's own producer does it.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Of the batches that are sent.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "-1", "1", "0"]),
    default="all",
    show_default=True,
    help="Who has to have a record: all (-1) in sync, the leader (1), nobody (0).",
)
@click.option(
    "--idempotent/--no-idempotent",
    default=None,
    help="No duplicates and no reordering by retries. Default with acks=all.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many records a second.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=30, show_default=True, help="Seconds that a record may take."
)
@progress_option
@quiet_option
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of the summary."
)
def produce(
    options: KafkaOptions,
    topic: str,
    source: BinaryIO,
    form: str,
    partition: int | None,
    rate: float | None,
    progress: bool | None,
    quiet: bool,
    output: str,
    **settings: Any,
) -> None:  # fmt: skip
    r"""Send a record for each line of standard input or of a file.

    Exit code 1: at least one record was not acknowledged; the first ten are named on standard error.

    \b
    Examples:
      echo hello | kafkalite produce quickstart
      kafkalite produce orders -K : -f orders.txt --compression zstd
      printf 'id:7,kind:a\tk\tv\n' | kafkalite produce orders --headers -K '\t'
      printf 'customer-1:-\n' | kafkalite produce state -K : --null-marker -
      kafkalite consume orders --from-beginning -e -o json | kafkalite produce copy -i json
    """
    from kafkalite_cli.kafka import brokers_of, client_config, partitions_of, plain_errors
    from kafkalite_cli.records.produce import Outbox, chunks, pump

    line_format = LineFormat(
        key=os.fsencode(settings["key"]) if settings["key"] is not None else None,
        key_separator=_text(settings["key_separator"]) if settings["key_separator"] is not None else None,
        headers=[(name, os.fsencode(value)) for name, value in settings["header_pairs"]],
        line_headers=settings["line_headers"],
        null_marker=_text(settings["null_marker"]) if settings["null_marker"] is not None else None,
    )
    _check_produce(form, line_format, settings)
    timeout_s = float(settings["timeout"])
    with plain_errors("these settings cannot be used"):
        brokers = brokers_of(options)
        config = client_config(brokers.bootstrap, producer_settings(settings) | options.properties)
        producer = make_producer(config)
    known = partitions_of(producer, topic, say=brokers.say)
    if partition is not None and partition not in known:
        raise Failure(f"topic {topic!r} has no partition {partition}: it has {known[0]} to {known[-1]}")
    problem: Exception | None = None
    with stoppable() as stop, Meter("sent", shown=_shown(progress, source), total=_size_of(source)) as meter:
        outbox = Outbox(producer, topic, partition=partition, tell=note)
        parse = parse_json if form == "json" else line_format.parse
        try:
            pump(chunks(source), parse, outbox, stop=stop, meter=meter, rate=rate)
        except Exception as error:  # whatever it is: what was taken before it is sent, and counted
            problem = error
        outbox.finish(
            time.monotonic() + timeout_s + 5,
            stop,
            tick=lambda: meter.update(outbox.acknowledged, outbox.size_bytes) if meter.due() else None,
        )
        elapsed_s = meter.elapsed_s
    if output == "json":
        print_json(outbox.summary(topic, elapsed_s))
    elif not quiet:
        note(rate_text("sent", outbox.acknowledged, outbox.size_bytes, elapsed_s))
    if isinstance(problem, LineError):
        raise Failure(str(problem)) from problem
    if problem is not None:
        raise problem
    if outbox.failed:
        reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(outbox.errors.items()))
        raise Failure(f"{outbox.failed:,} of {outbox.sent:,} records were not acknowledged: {reasons}")
    sys.exit(stop.exit_code)


def _check_produce(form: str, line_format: LineFormat, settings: dict[str, Any]) -> None:
    """Raises click.UsageError for options that contradict each other."""
    if form == "json" and line_format != LineFormat():
        raise click.UsageError("with -i json, keys and headers stand in the lines: leave such options out")
    if line_format.key is not None and line_format.key_separator is not None:
        raise click.UsageError("--key or --key-separator?")
    if line_format.key_separator == b"":
        raise click.UsageError("--key-separator is empty: say what stands between key and value")
    if settings["idempotent"] and settings["acks"] not in ALL:
        raise click.UsageError("--idempotent needs --acks all")


def producer_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The options under the names that librdkafka has for them."""
    everywhere = settings["acks"] in ALL
    idempotent = everywhere if settings["idempotent"] is None else settings["idempotent"]
    return {
        "acks": settings["acks"],
        "enable.idempotence": idempotent,
        "compression.type": settings["compression"],
        "delivery.timeout.ms": round(settings["timeout"] * 1000),
        "request.timeout.ms": min(30_000, round(settings["timeout"] * 1000)),
        "partitioner": "murmur2_random",  # Kafka's own: equal keys go where a Java producer sends them
        "queue.buffering.max.kbytes": 256 * 1024,
        "linger.ms": 5,
    }


def _shown(progress: bool | None, source: BinaryIO) -> bool | None:
    """A moving line is in the way of somebody who types."""
    if progress is None:
        with contextlib.suppress(AttributeError, ValueError):
            return False if source.isatty() else None
    return progress


def _size_of(source: BinaryIO) -> int | None:
    """Of a regular file, None of anything else."""
    import stat

    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


# --- consume ---------------------------------------------------------------------------------------------------------


def make_consumer(config: dict[str, Any]) -> Consumer:
    """Tests put another in its place."""
    from confluent_kafka import Consumer

    return Consumer(config)


def _numbers(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> list[int]:
    try:
        return sorted({int(number) for each in value for number in each.split(",")})
    except ValueError:
        raise click.BadParameter("expected numbers, e.g. 0 or 0,2") from None


def _fields(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    names = [name.strip() for each in value for name in each.split(",") if name.strip()]
    if strange := [name for name in names if name not in (*FIELDS, "value")]:
        raise click.BadParameter(f"{strange[0]!r} is not among {', '.join(FIELDS)}")
    return tuple(dict.fromkeys(name for name in names if name != "value"))


@click.command()
@kafka_options
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "-g",
    "--group",
    type=NonEmpty("group id"),
    help="Join this group and commit what was written. Without: read without a group.",
)
@click.option(
    "--from-beginning", is_flag=True, help="From where the log begins; in a group: where nothing is committed."
)
@click.option("--offset", "start", metavar="WHERE", help="beginning, end, an offset, -10 (the last ten) or @TIME.")
@click.option("-p", "--partition", "numbers", multiple=True, callback=_numbers, metavar="N[,N…]", help="Only these.")
@click.option("-c", "--max-messages", type=click.IntRange(min=1), help="End after so many records.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="End after so many seconds without a record."
)
@click.option("-e", "--exit-at-end", is_flag=True, help="End when every partition was read to its end.")
@click.option(
    "--print",
    "fields",
    multiple=True,
    callback=_fields,
    metavar="FIELD,…",
    help=f"Before the value: {', '.join(FIELDS)}.",
)
@click.option("--separator", default="\\t", show_default=True, metavar="TEXT", help="Between those fields.")
@progress_option
@quiet_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: an object a line, as `produce -i json` reads.",
)
def consume(
    options: KafkaOptions,
    topics: tuple[str, ...],
    group: str | None,
    from_beginning: bool,
    start: str | None,
    numbers: list[int],
    max_messages: int | None,
    timeout: float | None,
    exit_at_end: bool,
    fields: tuple[str, ...],
    separator: str,
    progress: bool | None,
    quiet: bool,
    output: str,
) -> None:  # fmt: skip
    r"""Write the records of topics to standard output, until interrupted.

    Without --from-beginning and --offset: what comes from now on, or in a group from where it stands. Exit code 1: the
    time ran out before --max-messages were read.

    \b
    Examples:
      kafkalite consume quickstart --from-beginning -e
      kafkalite consume orders --group billing --from-beginning
      kafkalite consume orders --offset -10 -e --print partition,offset,key
      kafkalite consume orders --offset @2026-01-31T12:00:00 -o json | jq .value
      kafkalite consume orders --group check -c 3 --timeout 10
    """
    from kafkalite_cli.kafka import brokers_of, client_config, partitions_of, plain_errors
    from kafkalite_cli.records import consume as reading

    topics = tuple(dict.fromkeys(topics))
    position = _position(group, start, numbers, from_beginning=from_beginning)
    form = JsonFormat() if output == "json" else TextFormat(fields=fields, separator=_text(separator))
    known: list[Inbox] = []
    settings = reading.consumer_config(group, from_beginning=from_beginning, eof=exit_at_end)
    # Errors of the client are told from its poll; before there is an inbox the command itself notices them.
    settings["error_cb"] = lambda error: known[0].note_error(error) if known else None
    settings["on_commit"] = lambda error, _partitions: warn(f"not committed: {error.str()}") if error else None
    with plain_errors("these settings cannot be used"):
        brokers = brokers_of(options)
        consumer = make_consumer(client_config(brokers.bootstrap, settings | options.properties))
    with contextlib.ExitStack() as stack:
        stack.callback(consumer.close)  # leaves the group and commits
        stop = stack.enter_context(stoppable())
        partitions = [(topic, number) for topic in topics for number in partitions_of(consumer, topic, say=brokers.say)]
        chosen = [each for each in partitions if not numbers or each[1] in numbers]
        if strange := set(numbers) - {number for _, number in partitions}:
            raise Failure(f"{', '.join(topics)} has no partition {min(strange)}")
        inbox = reading.Inbox(
            consumer,
            sys.stdout.buffer,
            form,
            in_group=group is not None,
            from_beginning=from_beginning,
            tell=warn,
        )
        known.append(inbox)
        shown = progress if progress is not None or not sys.stdout.isatty() else False
        with Meter("read", shown=shown, total=max_messages) as meter, plain_errors():
            if group is None:
                reading.assign(consumer, chosen, position)
            else:
                consumer.subscribe(list(topics), on_revoke=lambda _consumer, gone: inbox.forget(gone))
            limits = reading.Limits(records=max_messages, silence_s=timeout, at_end=exit_at_end)
            complete = inbox.run(limits, stop=stop, meter=meter)
            elapsed_s = meter.elapsed_s
        lag = inbox.lag()
    if not quiet:
        behind = "not known" if lag is None else f"{lag:,}"
        note(rate_text("read", inbox.count, inbox.size_bytes, elapsed_s) + f"; lag {behind}")
    if not complete:
        raise Failure(f"only {inbox.count:,} of {max_messages:,} records came: none for {timeout:g} s")
    sys.exit(stop.exit_code)


def _position(group: str | None, start: str | None, numbers: list[int], *, from_beginning: bool) -> Any:
    """Where to begin. Raises click.UsageError for options that contradict each other."""
    from kafkalite_cli.records.consume import Position, parse_position

    if group is not None and (start is not None or numbers):
        raise click.UsageError(
            "a group decides itself who reads which partition from where: --group, or --offset and --partition"
        )
    if from_beginning and start is not None:
        raise click.UsageError("--from-beginning or --offset?")
    position = parse_position(start) if start is not None else Position("beginning" if from_beginning else "end")
    if position.kind == "at" and not numbers:
        raise click.UsageError("an offset belongs to a partition: say --partition as well")
    return position
