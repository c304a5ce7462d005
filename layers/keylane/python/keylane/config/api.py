"""What the API serves, under which path, and to whose pages: KEYLANE_TOPICS, _BASE_PATH and _CORS_ORIGIN."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from keylane.config.table import API
from keylane.errors import SettingsError
from keylane.model.patterns import are_patterns
from keylane.model.served_topics import ALL, ALL_TOPICS, ServedTopics

_TOPICS = "KEYLANE_TOPICS"
_FIELDS = ("read", "write")


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the API serves.

    `base_path`: what precedes the routes in a path, "" for nothing. `topics`: those that are served.
    `cors_headers`: what lets a browser's pages of an origin read each answer; none by default.
    `has_agent_writes`: whether tools of agents write, where the host can.
    `rest_compatibility`: the server whose requests and answers are those of REST Proxy's routes, "" for none.
    """

    base_path: str = ""
    topics: ServedTopics = ALL_TOPICS
    cors_headers: Mapping[str, str] = field(default_factory=dict)
    rest_compatibility: str = ""
    has_agent_writes: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all settings. Raises SettingsError."""
        base_path = API.read(environment, "KEYLANE_BASE_PATH")
        origin = API.read(environment, "KEYLANE_CORS_ORIGIN")
        return cls(
            base_path,
            _served_topics(environment),
            _cors_headers(origin) if origin else {},
            API.read(environment, "KEYLANE_REST_COMPATIBILITY"),
            API.read(environment, "KEYLANE_MCP_WRITES"),
        )

    def path_of(self, path: str) -> str:
        """Return a request's path without the base path, which requests by another domain lack."""
        if self.base_path and path.startswith(f"{self.base_path}/"):
            return path[len(self.base_path) :]
        return path


def _cors_headers(origin: str) -> dict[str, str]:
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "*"}


def _served_topics(environment: Mapping[str, str]) -> ServedTopics:
    given = API.read(environment, _TOPICS)
    for name in given.keys() - set(_FIELDS):
        raise SettingsError(_TOPICS, f"has {name[:100]!r}: its fields are read and write")
    for name, patterns in given.items():
        if not are_patterns(patterns):
            raise SettingsError(_TOPICS, f"has a field {name} that is not an array of patterns")
    return ServedTopics(*(tuple(given[name]) if name in given else ALL for name in _FIELDS))
