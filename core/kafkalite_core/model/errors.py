"""The root of every exception that KafkaLite raises on purpose.

An error that crosses the Kafka wire carries its `error_code`, so that the mapping to an answer is one line.
"""


class KafkaLiteError(Exception):
    """Root of all errors of the project."""


class BrokerError(KafkaLiteError):
    """An error with a Kafka error code; a request handler answers it to the client.

    Attributes:
        error_code: Kafka's number (`kafkalite_core.protocol.errors.ErrorCode`).
        message: A sentence for the user; sent where the response has a field for it, logged otherwise.
    """

    def __init__(self, error_code: int, message: str = "") -> None:
        super().__init__(message or f"error code {error_code}")
        self.error_code = int(error_code)
        self.message = message


class ConfigError(KafkaLiteError):
    """A configuration key that is unknown, or a value that is not allowed. The text names key, value and remedy."""


class StorageError(KafkaLiteError):
    """The log could not be written for want of space (ENOSPC, EDQUOT): the partial batch was cut off again.

    Other write errors and every fsync error are fatal for the process (R12) and are not this class.
    """
