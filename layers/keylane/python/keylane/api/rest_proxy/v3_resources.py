"""Resources as Confluent's REST Proxy v3 answers them: what a kind of them is, and how one is rendered.

    {"kind": "KafkaTopic",
     "metadata": {"self": "https://HOST/v3/clusters/ID/topics/t", "resource_name": "crn:///kafka=ID/topic=t"},
     "cluster_id": ID, "topic_name": "t", "partitions_count": 9, "partitions": {"related": URL}, ...}

A list is {"kind": "KafkaTopicList", "metadata": {"self": URL, "next": null}, "data": [...]}. Links to what
Keylane does not serve (ACLs, reassignments, one consumer, its assignments, the lag of one partition) are
there, as clients expect the fields, and are 404.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias
from urllib.parse import quote

from keylane.api.http.json_response import render_json
from keylane.api.http.request import Request, is_host
from keylane.api.http.response import Response
from keylane.api.http.schemas import MAYBE_TEXT, TEXT, Schema, an_array

Parts: TypeAlias = tuple[str | int, ...]

CLUSTERS = "/v3/clusters"
_SCHEMES = ("http", "https")
_METADATA = Schema.of("V3Metadata", self=TEXT, resource_name=TEXT)
_LIST_METADATA = Schema.of("V3ListMetadata", self=TEXT, next=MAYBE_TEXT)
_LINK = Schema.of("V3Link", related={**TEXT, "description": "a URL"})


@dataclass(frozen=True, slots=True)
class Links:
    """Makes the links of one response. `base`: of the API, without a slash at its end."""

    base: str

    @classmethod
    def of(cls, request: Request) -> Self:
        """Make links as the client sees the API: by its host, stage and base path.

        What is no host or scheme is in no link.
        """
        host = request.headers.get("host", "")
        host = host if is_host(host) else "localhost"
        # A domain of one's own has no stage in its paths.
        is_gateway = ".execute-api." in host
        root_path = request.root_path if is_gateway else ""
        scheme = request.headers.get("x-forwarded-proto", "")
        scheme = scheme if scheme in _SCHEMES else "https" if is_gateway else "http"
        return cls(f"{scheme}://{host}{root_path}{request.path.partition(CLUSTERS)[0]}")

    def related(self, *parts: str | int) -> dict[str, str]:
        """A link to another resource."""
        return {"related": self.url(*parts)}

    def url(self, *parts: str | int) -> str:
        """The address of the resource at these parts of the path, below the clusters."""
        return "/".join((f"{self.base}{CLUSTERS}", *(quote(str(part), safe="") for part in parts)))


class ResourceRow(NamedTuple):
    """What one resource has of its own: values of its fields, and links to others, from its cluster on."""

    values: Mapping[str, Any]
    others: Mapping[str, Parts] = {}


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource.

    `row` makes a ResourceRow of what was found and of the values `above` it, which name what it belongs to.
    `collection`: where lists of it are, below a cluster; `path`: where one is, below that; with the names of
    its fields in braces. `fields`: their schemas. `others`: links to other resources, which each row has;
    `optional`: those that it may lack. `links`: to what is below it, by their paths. `name`: of its schema;
    "": V3, and the kind's. `ending`: of a resource's name, where that is not the path's.
    """

    kind: str
    row: Callable[[Any, Mapping[str, Any]], ResourceRow]
    collection: str
    path: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    ending: str = ""

    @property
    def schema(self) -> Schema:
        """The schema of one."""
        own: dict[str, Any] = {"kind": {"const": self.kind}, "metadata": _METADATA, "cluster_id": TEXT}
        own |= self.fields
        own |= dict.fromkeys((*self.others, *self.links, *self.optional), _LINK)
        return Schema.of(self._schema_name, optional=self.optional, **own)

    @property
    def list_schema(self) -> Schema:
        """The schema of a list."""
        fields: dict[str, Any] = {"kind": {"const": f"{self.kind}List"}, "metadata": _LIST_METADATA}
        return Schema.of(f"{self._schema_name}s", **fields, data=an_array(self.schema))

    @property
    def _schema_name(self) -> str:
        return self.name or f"V3{self.kind.removeprefix('Kafka')}"

    def render(self, links: Links, cluster_id: str, found: Any, **above: Any) -> Response[str]:
        """Render one resource."""
        return render_json(self.document(links, cluster_id, found, **above))

    def render_list(self, links: Links, cluster_id: str, found: Iterable[Any], **above: Any) -> Response[str]:
        """Render a list of a cluster's resources."""
        path = (cluster_id, *_parts(self.collection, above))
        return self.render_documents(
            links, path, [self.document(links, cluster_id, each, **above) for each in found]
        )

    def render_documents(self, links: Links, path: Parts, data: Sequence[dict[str, Any]]) -> Response[str]:
        """Render a list at a path."""
        metadata = {"self": links.url(*path), "next": None}
        return render_json({"kind": f"{self.kind}List", "metadata": metadata, "data": list(data)})

    def document(self, links: Links, cluster_id: str, found: Any, **above: Any) -> dict[str, Any]:
        """Return the document of one resource."""
        row = self.row(found, above)
        values = {**above, **row.values}
        path = (cluster_id, *_parts(self.collection, values), *_parts(self.path, values))
        return {
            "kind": self.kind,
            "metadata": {"self": links.url(*path), "resource_name": _name_of(path, self.ending)},
            "cluster_id": cluster_id,
            **values,
            **{name: links.related(cluster_id, *parts) for name, parts in row.others.items()},
            **{name: links.related(*path, *below.split("/")) for name, below in self.links.items()},
        }


def _parts(path: str, values: Mapping[str, Any]) -> Parts:
    return tuple(values[part[1:-1]] if part[0] == "{" else part for part in path.split("/") if part)


def _name_of(path: Parts, ending: str) -> str:
    """Return Confluent's name of a resource, made of its path: `topics/t` becomes `topic=t`."""
    cluster_id, *rest = map(str, path)
    pairs = [f"{name.removesuffix('s')}={value}" for name, value in zip(rest[::2], rest[1::2], strict=False)]
    alone = rest[-1:] if len(rest) % 2 else []
    return "crn:///" + "/".join([f"kafka={cluster_id}", *pairs, *([ending] if ending else alone)])
