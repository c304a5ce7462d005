"""As much of Kubernetes' API as Spark's driver asks: pods in one namespace, each a process of this machine.

A pod's process has its container's command and arguments, and of the environment what the pod and the image
say. Requests that a role does not allow are refused, as Kubernetes does.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.own import guarded
from tests.support.http_doubles import Exchange, HttpDouble

from keylane_local.process.ports import HOST
from keylane_local.process.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_POLL_S = 0.05
Document = dict[str, Any]


class Pod:
    """A pod and its process. `image`: the environment that the image has."""

    def __init__(self, document: Document, folder: Path, image: Mapping[str, str]) -> None:
        self.document = document
        self.name = str(document["metadata"]["name"])
        [container] = document["spec"]["containers"]
        self.container: Document = container
        variables = {each["name"]: each.get("value", HOST) for each in container["env"]}
        # A volume of the pod in a cluster.
        variables |= {"SPARK_LOCAL_DIRS": str(folder)}
        python, *command = [*container["command"], *container["args"]]
        assert python == "python"
        environment = [f"{name}={value}" for name, value in {**image, **variables}.items()]
        self.program = Program(
            self.name,
            ["/usr/bin/env", "-i", *environment, sys.executable, *command],
            pid_file=folder / f"{self.name}.json",
            log=folder / f"{self.name}.log",
            cwd=folder,
            env={},
        )

    def start(self) -> None:
        """Start its process. It has the address of this machine."""
        self.program.start()
        self.document["status"] = {"phase": "Running", "podIP": HOST}

    def has(self, selector: str) -> bool:
        """Return whether it has the labels that a request asks for: `name=value,name!=value`."""
        labels = self.document["metadata"]["labels"]
        for each in filter(None, selector.split(",")):
            name, _, value = each.partition("=")
            if (labels.get(name.removesuffix("!")) == value) == name.endswith("!"):
                return False
        return True

    @property
    def is_running(self) -> bool:
        """Whether Kubernetes takes it for running."""
        return str(self.document["status"]["phase"]) == "Running"

    def look(self) -> bool:
        """Return whether its process has ended since the last look; the pod has failed then."""
        if not self.is_running or self.program.running:
            return False
        ended = {"name": self.container["name"], "state": {"terminated": {"exitCode": 137}}, "ready": False}
        self.document["status"] |= {"phase": "Failed", "containerStatuses": [ended | {"restartCount": 0}]}
        return True


class KubernetesApi(HttpDouble):
    """The API of a cluster, in this process. `rules`: those of the role of who asks."""

    def __init__(self, folder: Path, rules: Sequence[Document], image: Mapping[str, str]) -> None:
        self._folder, self._rules, self._image = folder, rules, image
        self._lock = threading.RLock()
        self._version = 1
        self._over = threading.Event()
        self.pods: dict[str, Pod] = {}
        """Those that are there now."""
        self.created: list[Pod] = []
        self.asked: set[tuple[str, str]] = set()
        """Verbs and resources, those that were refused among them."""
        self.refused: set[tuple[str, str]] = set()
        super().__init__(self._reply, protocol="HTTP/1.1")
        self.master = f"k8s://{self.url}"
        """What a job names as `spark.master`."""

    def close(self) -> None:
        """Kill all pods, too."""
        self._over.set()
        super().close()
        for pod in self.created:
            pod.program.kill()

    def _reply(self, request: Exchange) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(request)

    def _answer(self, request: Exchange) -> None:
        """Answer a request, if the role allows it."""
        address = urlsplit(request.path)
        body = json.loads(request.body() or b"{}")
        # /api/v1/namespaces/NAMESPACE/RESOURCE[/NAME]
        _, _, _, _, _, resource, *name = address.path.split("/")
        query = parse_qs(address.query)
        is_watch = "watch" in query
        [selector] = query.get("labelSelector", [""])
        verb = _verb(request.command, is_watch=is_watch, is_one=bool(name))
        self.asked.add((verb, resource))
        if not any(verb in rule["verbs"] and resource in rule["resources"] for rule in self._rules):
            self.refused.add((verb, resource))
            self._send(request, 403, {"kind": "Status", "status": "Failure", "code": 403})
        elif is_watch and request.headers.get("Upgrade"):
            self._send(request, 200, {})  # no web sockets here: the client asks again without
        elif is_watch:
            self._watch(request, selector)
        else:
            self._send(request, *self._act(verb, resource, body, name[0] if name else "", selector))

    def _act(
        self, verb: str, resource: str, body: Document, name: str, selector: str
    ) -> tuple[int, Document]:
        with self._lock:
            if resource != "pods":
                return 200, body | {"items": [], "metadata": {"resourceVersion": "1"}}
            if verb == "create":
                return 201, self._create(body)
            if verb == "list":
                items = [pod.document for pod in self.pods.values() if pod.has(selector)]
                return 200, {"kind": "PodList", "metadata": self._next(), "items": items}
            if verb == "deletecollection":
                for each in [pod.name for pod in self.pods.values() if pod.has(selector)]:
                    self._delete(each)
                return 200, {"kind": "Status", "status": "Success"}
            if name not in self.pods:  # the driver's own, which is a process of the test
                metadata = {"name": name, "uid": f"uid-{name}"}
                return 200, {"kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": "Running"}}
            found = self.pods[name].document
            if verb == "delete":
                self._delete(name)
            return 200, found

    def _create(self, document: Document) -> Document:
        pod = Pod(document, self._folder, self._image)
        document["metadata"] |= {"uid": f"uid-{pod.name}", **self._next()}
        document["metadata"]["creationTimestamp"] = "2026-11-25T00:00:00Z"
        pod.start()
        self.pods[pod.name] = pod
        self.created.append(pod)
        return document

    def _delete(self, name: str) -> None:
        self.pods.pop(name).program.kill()

    def _next(self) -> dict[str, str]:
        self._version += 1
        return {"resourceVersion": str(self._version)}

    def _watch(self, request: Exchange, selector: str) -> None:
        """Send each pod with these labels, and again when it has changed."""
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        sent: dict[str, str] = {}
        while not self._over.wait(_POLL_S):
            with self._lock:
                for pod in self.pods.values():
                    if pod.look():
                        pod.document["metadata"] |= self._next()
                changed = [
                    pod.document
                    for name, pod in self.pods.items()
                    if pod.has(selector) and sent.get(name) != pod.document["metadata"]["resourceVersion"]
                ]
            for each in changed:
                kind = "MODIFIED" if each["metadata"]["name"] in sent else "ADDED"
                sent[each["metadata"]["name"]] = each["metadata"]["resourceVersion"]
                request.wfile.write(json.dumps({"type": kind, "object": each}).encode() + b"\n")

    def _send(self, request: Exchange, status: int, document: Document) -> None:
        body = json.dumps({"apiVersion": "v1"} | document).encode()
        request.answer(status, body, [("Content-Type", "application/json")])


def _verb(method: str, *, is_watch: bool, is_one: bool) -> str:
    """Kubernetes' verb of a request."""
    if method == "GET":
        return "watch" if is_watch else "get" if is_one else "list"
    return {"POST": "create", "PATCH": "patch", "DELETE": "delete" if is_one else "deletecollection"}[method]


@contextlib.contextmanager
def own_kubernetes(
    folder: Path, rules: Sequence[Document], image: Mapping[str, str]
) -> Iterator[KubernetesApi]:
    """Yield an API; all its pods are killed in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with guarded(folder), KubernetesApi(folder, rules, image) as api:
        yield api
