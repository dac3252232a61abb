"""Configuration as DescribeConfigs tells it: every key with the value in force, and where that comes from.

The layers, the first that has the key wins, as in Kafka: the topic's own configuration; the cluster's, which brokers
follow while they run; what a broker was started with, for keys that a running broker does not change; the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from kafkalite_core.model.config import BROKER_KEYS, DYNAMIC_BROKER_KEYS, TOPIC_KEYS, UNLIMITED, ConfigKey, ConfigType
from kafkalite_core.model.config_docs import STATIC_DOCUMENTATION
from kafkalite_core.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One layer that has a value for a key.

    Attributes:
        name: The key's name in that layer.
        value: Its text.
        source: The layer.
    """

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One key with its value in force.

    Attributes:
        name: Of the key.
        value: Text of the value in force.
        source: The layer that it comes from.
        read_only: Clients cannot change it.
        type: Type of its values.
        synonyms: All layers that have a value, the one in force first.
        doc: A sentence.
    """

    name: str
    value: str
    source: ConfigSource
    read_only: bool
    type: ConfigType
    synonyms: tuple[ConfigSynonym, ...]
    doc: str


class ConfigView:
    """The configuration of one broker, and of the topics as this broker follows them.

    A value that does not parse is passed over, as wherever it is used; of a topic's retention it is none (`UNLIMITED`).

    Args:
        started: Broker keys that the broker was started with.
        cluster: `spec.config` of the cluster as last seen.
    """

    def __init__(self, started: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        self._started = started
        self._cluster = cluster
        self._layers: dict[str, tuple[ConfigSynonym, ...]] = {}

    def broker(self, facts: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Every broker key, or those named; `facts` are values that follow from the broker's pod."""
        source = ConfigSource.STATIC_BROKER_CONFIG
        entries = [
            ConfigEntry(
                name=name,
                value=value,
                source=source,
                read_only=True,
                type=ConfigType.STRING,
                synonyms=(ConfigSynonym(name, value, source),),
                doc=STATIC_DOCUMENTATION.get(name, ""),
            )
            for name, value in facts.items()
            if names is None or name in names
        ]
        entries += [
            _entry(key, self._broker_layers(name), read_only=name not in DYNAMIC_BROKER_KEYS)
            for name, key in BROKER_KEYS.items()
            if names is None or name in names
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def cluster_default(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """The keys that are set for all brokers while they run."""
        return [
            _entry(BROKER_KEYS[name], self._broker_layers(name), read_only=False)
            for name in sorted(DYNAMIC_BROKER_KEYS & self._cluster.keys())
            if (names is None or name in names) and valid_text(BROKER_KEYS[name], self._cluster[name]) is not None
        ]

    def topic(self, config: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Every topic key, or those named, for a topic with that `spec.config`."""
        entries = []
        for name, key in TOPIC_KEYS.items():
            if names is not None and name not in names:
                continue
            layers = self._broker_layers(key.synonym)
            own = config.get(name)
            text = None if own is None else valid_text(key, own)
            if own is not None and text is None and name in UNLIMITED:
                text = str(UNLIMITED[name])
            if text is not None:
                layers = (ConfigSynonym(name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG), *layers)
            entries.append(_entry(key, layers, read_only=False))
        return entries

    def _broker_layers(self, name: str) -> tuple[ConfigSynonym, ...]:
        found = self._layers.get(name)
        if found is None:
            key = BROKER_KEYS[name]
            dynamic = name in DYNAMIC_BROKER_KEYS
            given = (self._cluster if dynamic else self._started).get(name)
            text = None if given is None else valid_text(key, given)
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG if dynamic else ConfigSource.STATIC_BROKER_CONFIG
            default = ConfigSynonym(name, key.default, ConfigSource.DEFAULT_CONFIG)
            found = self._layers[name] = (default,) if text is None else (ConfigSynonym(name, text, source), default)
        return found


def _entry(key: ConfigKey, layers: tuple[ConfigSynonym, ...], read_only: bool) -> ConfigEntry:
    first = layers[0]
    return ConfigEntry(
        name=key.name,
        value=first.value,
        source=first.source,
        read_only=read_only,
        type=key.type,
        synonyms=layers,
        doc=key.doc,
    )


def valid_text(key: ConfigKey, text: str) -> str | None:
    """The text of a value as Kafka would print it; None when it is not allowed."""
    try:
        value = key.parse(key.name, text)
    except ConfigError:
        return None
    if key.type is ConfigType.LIST:
        return ",".join(word.strip() for word in text.split(",") if word.strip())
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
