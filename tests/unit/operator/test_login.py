"""How kopf reaches the API server."""

import kopf
import pytest

from kafkalite_operator.handlers import login


@pytest.fixture
def service_account(monkeypatch):
    """What kopf makes of a pod's service account."""
    account = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="secret", ca_path="/ca.crt")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: account)
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: None)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return account


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
async def test_in_a_pod_kopf_needs_no_dns(monkeypatch, service_account, host, server):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    found = await login()
    assert (found.server, found.token, found.ca_path) == (server, service_account.token, service_account.ca_path)


async def test_without_an_address_the_name_has_to_do(monkeypatch, service_account):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert await login() is service_account


async def test_a_kubeconfig_says_where_its_server_is(monkeypatch, service_account):
    named = kopf.ConnectionInfo(server="https://example.test:6443")
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: named)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert await login() is named
