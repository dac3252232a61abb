import pytest
import yaml

from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.kube import config
from kafkalite_runtime.kube.config import KubeConfig


def kubeconfig(tmp_path, **changes):
    document = {
        "current-context": "two",
        "contexts": [
            {"name": "one", "context": {"cluster": "c1", "user": "u"}},
            {"name": "two", "context": {"cluster": "c2", "user": "u", "namespace": "ns"}},
        ],
        "clusters": [
            {"name": "c1", "cluster": {"server": "http://one:1/"}},
            {"name": "c2", "cluster": {"server": "http://two:2"}},
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document | changes))
    return path


def test_the_current_context_else_the_first(tmp_path):
    path = kubeconfig(tmp_path)
    chosen = KubeConfig.from_environment({"KUBECONFIG": f"{tmp_path}/absent:{path}"})
    assert (chosen.server, chosen.token, chosen.namespace) == ("http://two:2", "secret", "ns")
    first = KubeConfig.from_file(kubeconfig(tmp_path, **{"current-context": ""}))
    assert (first.server, first.namespace) == ("http://one:1", "default")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contexts": []}, "has no context"),
        ({"current-context": "three"}, "no three among its contexts"),
        ({"clusters": []}, "no c2 among its clusters"),
        ({"clusters": [{"name": "c2", "cluster": {}}]}, "no server address"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "aws"}}}]}, "plugin"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        KubeConfig.from_file(kubeconfig(tmp_path, **changes))


def test_nothing_to_go_by(tmp_path):
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        KubeConfig.from_environment({})
    with pytest.raises(ConfigError, match="no such file"):
        KubeConfig.from_environment({"KUBECONFIG": str(tmp_path / "absent")})
    (tmp_path / "broken").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        KubeConfig.from_file(tmp_path / "broken")


def test_a_pod_uses_its_service_account(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(config.ssl, "create_default_context", lambda cafile: f"trusts {cafile}")
    (tmp_path / "namespace").write_text("prod\n")
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_text("certificates")
    found = KubeConfig.from_environment({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (found.server, found.namespace) == ("https://[fd00::1]:6443", "prod")
    assert found.token_file.get() == "t"
    assert found.trust() == f"trusts {tmp_path}/ca.crt"


class Authority:
    """A file with the authority of a cluster, and what is made of it: one that says nothing is refused, as in ssl."""

    def __init__(self, path, monkeypatch):
        self.path, self.now_s, self.made = path, 0.0, 0
        monkeypatch.setattr(config.ssl, "create_default_context", self.make)
        self.file = config.AuthorityFile(path, clock=lambda: self.now_s)

    def make(self, cafile):
        if not (text := self.path.read_text()):
            raise config.ssl.SSLError("no certificate or crl found")
        self.made += 1
        return f"trusts {text}"

    def a_minute_later(self):
        self.now_s += 60.0
        return self.file.get()


def test_the_authority_is_looked_at_every_minute_and_made_of_it_is_only_what_changed(tmp_path, monkeypatch):
    authority = Authority(tmp_path / "ca.crt", monkeypatch)
    with pytest.raises(OSError, match="No such file"):
        authority.file.get()
    authority.path.write_text("old")
    first = authority.file.get()
    assert authority.a_minute_later() is first
    authority.path.write_text("old, new")
    authority.now_s += 59.0
    assert authority.file.get() is first
    assert authority.a_minute_later() == "trusts old, new"
    assert authority.made == 2, "connections are kept by what they were made with"


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text("")], ids=["gone", "empty"])
def test_an_authority_that_cannot_be_read_just_now_is_the_last_one(tmp_path, monkeypatch, spoil):
    authority = Authority(tmp_path / "ca.crt", monkeypatch)
    authority.path.write_text("old")
    authority.file.get()
    spoil(authority.path)
    assert authority.a_minute_later() == "trusts old"
    authority.path.write_text("new")
    assert authority.file.get() == "trusts new", "it is looked at again with the next call"
