"""Options that several commands share: what an unset variable of the shell makes of them."""

import pytest
from click.testing import CliRunner

from kafkalite_cli import connection, kafka
from kafkalite_cli.main import main

KUBE = ("-n", "--namespace", "--context", "--cluster", "--kubeconfig")
COMMANDS = [
    *((["topics", "delete", "orders", "--yes"], option) for option in KUBE),
    *((["restart", "--all", "--yes"], option) for option in KUBE),
    *((["doctor"], option) for option in KUBE),
    *((["status"], option) for option in KUBE if option != "--cluster"),
    *((["apply", "-f", "absent.yaml"], option) for option in ("-n", "--context", "--kubeconfig")),
    *((["verify", "record-metadata", "absent/m.jsonl"], option) for option in ("-n", "--context", "--kubeconfig")),
    *((["groups", "list"], option) for option in ("-b", "--bootstrap", "-n", "--context")),
    *((["consume", "orders"], option) for option in ("-b", "-g")),
    (["produce", "orders"], "-b"),
]


@pytest.fixture
def nowhere(monkeypatch):
    """No command may come so far as to ask anybody."""

    def asked(*_arguments, **_more):
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(connection, "choose_target", asked)
    monkeypatch.setattr(kafka, "brokers_of", asked)


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(("command", "option"), COMMANDS, ids=lambda each: each if isinstance(each, str) else each[0])
def test_an_option_that_is_empty_is_refused(nowhere, command, option, value):
    result = CliRunner().invoke(main, [*command, option, value])
    assert (result.exit_code, "is not empty" in result.stderr) == (2, True), (result.output, result.exception)
    assert option in result.stderr


def test_the_setting_behind_bootstrap_is_not_empty_either(nowhere, tmp_path):
    result = CliRunner().invoke(main, ["groups", "list", "-X", "bootstrap.servers="])
    assert (result.exit_code, "bootstrap.servers is empty" in result.stderr) == (2, True), result.output
    settings = tmp_path / "client.properties"
    settings.write_text("bootstrap.servers =\n")
    result = CliRunner().invoke(main, ["groups", "list", "--command-config", str(settings)])
    assert (result.exit_code, "bootstrap.servers is empty" in result.stderr) == (2, True), result.output
