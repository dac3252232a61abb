"""What a client wants changed in a configuration, checked: key -> new text, or None for a key that goes."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from kafkalite_core.model.config import ConfigType
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalite_core.model.config import ConfigKey
    from kafkalite_core.protocol import alter_configs, incremental_alter_configs

    Changes = dict[str, str | None]


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_changes(
    wanted: Sequence[incremental_alter_configs.AlterableConfig],
    keys: Mapping[str, ConfigKey],
    current: Mapping[str, str],
) -> Changes:
    """The changes that the operations make of `current`.

    APPEND and SUBTRACT work on the resource's own list, or on the default when it has none, as in Kafka.

    Raises:
        BrokerError: INVALID_REQUEST for repeated keys, missing values and unknown operations; INVALID_CONFIG for a list
            operation on a key that is no list.
    """
    _refuse_repeats([entry.name for entry in wanted])
    changes: Changes = {}
    for entry in wanted:
        if entry.config_operation == Operation.DELETE:
            changes[entry.name] = None
            continue
        if entry.config_operation not in set(Operation):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{entry.name}: there is no operation {entry.config_operation} on configs"
            )
        if entry.value is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{entry.name}: a value is needed; DELETE removes the key")
        if entry.config_operation == Operation.SET:
            changes[entry.name] = entry.value
        else:
            changes[entry.name] = _edited_list(entry, keys, current)
    return changes


def _edited_list(
    entry: incremental_alter_configs.AlterableConfig, keys: Mapping[str, ConfigKey], current: Mapping[str, str]
) -> str:
    operation = Operation(entry.config_operation)
    key = keys.get(entry.name)
    if key is None or key.type is not ConfigType.LIST:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{entry.name}: {operation.name} is for lists, and this is none")
    have = _words(current.get(entry.name, key.default))
    given = _words(entry.value or "")
    if operation is Operation.APPEND:
        have += [word for word in given if word not in have]
    else:
        have = [word for word in have if word not in given]
    return ",".join(have)


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def replacing_changes(
    wanted: Sequence[alter_configs.AlterableConfig], current: Mapping[str, str], replaced: Collection[str]
) -> Changes:
    """The changes that make the configuration what AlterConfigs lists: keys of `replaced` that it lacks are removed.

    Raises:
        BrokerError: INVALID_REQUEST for repeated keys and missing values.
    """
    _refuse_repeats([entry.name for entry in wanted])
    changes: Changes = {name: None for name in current if name in replaced}
    for entry in wanted:
        if entry.value is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{entry.name}: a value is needed")
        changes[entry.name] = entry.value
    return changes


def _refuse_repeats(names: list[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"each key may be named once only, these come again: {', '.join(repeated)}"
        )


def shows(config: Mapping[str, str], changes: Mapping[str, str | None]) -> bool:
    """Whether a configuration has these changes."""
    return all(config.get(name) == text for name, text in changes.items())
