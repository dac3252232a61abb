"""HTTP probes of a container: startup, readiness, liveness."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from kafkalite_local.kubelet.pod_spec import POD_IP, LaunchError

QUICK_PERIOD_S = 0.1
QUICK_PROBES = 100
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One `httpGet` probe with Kubernetes' defaults."""

    url: str
    initial_delay_s: float = 0.0
    period_s: float = 10.0
    timeout_s: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3

    @classmethod
    def parse(cls, spec: JsonObject | None, container: JsonObject, port_offset: int = 0) -> "Probe | None":
        """From the pod's spec; None when there is no such probe. Raises LaunchError for other probe handlers.

        Args:
            spec: the probe.
            container: for its named ports.
            port_offset: added to the port, see `port_offset`.
        """
        if not spec:
            return None
        if "httpGet" not in spec:
            raise LaunchError("CreateContainerConfigError", "the local kubelet knows httpGet probes only")
        http = spec["httpGet"]
        port = http["port"]
        if isinstance(port, str) and not port.isdigit():
            named = [each["containerPort"] for each in container.get("ports") or [] if each.get("name") == port]
            if not named:
                raise LaunchError("CreateContainerConfigError", f"probe: no port named {port}")
            port = named[0]
        path = str(http.get("path") or "/").lstrip("/")
        scheme = str(http.get("scheme") or "http").lower()
        return cls(
            url=f"{scheme}://{http.get('host') or POD_IP}:{int(port) + port_offset}/{path}",
            initial_delay_s=float(spec.get("initialDelaySeconds") or 0),
            period_s=float(spec.get("periodSeconds") or 10),
            timeout_s=float(spec.get("timeoutSeconds") or 1),
            success_threshold=int(spec.get("successThreshold") or 1),
            failure_threshold=int(spec.get("failureThreshold") or 3),
        )


def port_offset(pod: JsonObject) -> int:
    """Pods of one StatefulSet that share the host's network share one host here: replica n listens at port + n."""
    index = str((pod["metadata"].get("labels") or {}).get("apps.kubernetes.io/pod-index", ""))
    return int(index) if pod["spec"].get("hostNetwork") and index.isdigit() else 0


async def check(session: aiohttp.ClientSession, probe: Probe) -> str:
    """Ask once: empty when all is well, otherwise what is wrong."""
    try:
        async with (
            asyncio.timeout(probe.timeout_s),
            session.get(probe.url, allow_redirects=False, ssl=False) as response,
        ):
            text = (await response.content.read(512)).decode("utf-8", "replace").strip()
            return "" if 200 <= response.status < 400 else f"HTTP {response.status}: {text}"
    except TimeoutError:
        return f"no answer in {probe.timeout_s:g} s"
    except (aiohttp.ClientError, OSError) as error:
        return str(error) or type(error).__name__


async def follow(session: aiohttp.ClientSession, probe: Probe, on_verdict: Callable[[bool, str], None]) -> None:
    """Probe until cancelled; `on_verdict(healthy, why_not)` is called whenever the verdict changes.

    Until the first success the probe is repeated quickly (for ten seconds), so that starting costs no whole period.
    """
    await asyncio.sleep(probe.initial_delay_s)
    clock = asyncio.get_running_loop().time
    verdict: bool | None = None
    successes = failures = asked = 0
    last_failure = float("-inf")
    while True:
        problem = await check(session, probe)
        asked += 1
        if not problem:
            successes, failures = successes + 1, 0
        elif clock() - last_failure >= probe.period_s * 0.9 or not failures:
            # Hurried probes may not use up the patience that periodSeconds times failureThreshold stands for.
            successes, failures, last_failure = 0, failures + 1, clock()
        decided = verdict
        if successes >= probe.success_threshold:
            decided = True
        elif failures >= probe.failure_threshold:
            decided = False
        if decided is not None and decided != verdict:
            verdict = decided
            on_verdict(decided, problem)
        hurried = verdict is not True and asked <= QUICK_PROBES
        await asyncio.sleep(min(probe.period_s, QUICK_PERIOD_S) if hurried else probe.period_s)
