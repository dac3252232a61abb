"""How `kafkalite up` may end, other than well."""

from collections.abc import Sequence

from kafkalite_cli.errors import Failure


class NotReady(Failure):
    """The cluster did not become ready; `process` names whose log tells more."""

    def __init__(self, message: str, process: str = "") -> None:
        super().__init__(message)
        self.process = process


class RunsAllTheSame(Failure):
    """Not everything is as it was asked for, but the cluster runs and stays up, so that it can be corrected."""

    headline = "KafkaLite runs."


class ManifestsRefused(RunsAllTheSame):
    """Everything is ready but what the API server has refused; a sentence for each object."""

    headline = "KafkaLite runs; not every manifest was accepted."

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(
            "\n".join(sentences)
            + "\n\nThe cluster itself runs and was not stopped: correct the manifest and run `kafkalite apply -f` with "
            "its file."
        )


class TopicsNotReady(RunsAllTheSame):
    """Topics are not ready, for which they have to be corrected."""

    headline = "KafkaLite runs; not every topic is ready."

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__(
            "\n".join(sentences)
            + "\n\nThe cluster itself runs and was not stopped: correct the topic and run `kafkalite apply -f` with "
            "its file, or delete it (`kafkalite status` shows its state)."
        )


class ClustersNotReady(RunsAllTheSame):
    """A cluster does not run, or not yet; another one does."""

    headline = "KafkaLite runs; not every cluster does."

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__(
            "\n".join(sentences)
            + "\n\nThe other clusters run, and nothing was stopped: correct the KafkaLiteCluster and run `kafkalite "
            "apply -f` with its file, or delete it (`kafkalite status` shows its state)."
        )
