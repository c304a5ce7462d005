"""Options of the server, from the command line to its processes: in one variable of their environment."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from keylane_server.admission import Limits

VARIABLE = "STANDING_SERVER_OPTIONS"
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable of Prometheus' library for the folder in which several processes write their numbers."""
_PATHS = ("tls_certificate", "tls_key", "console")
NONE, TOKENS = AUTHORIZATIONS = ("none", "tokens")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server listens and whom it serves.

    `console`: the folder of the console, None to serve none. `emf`: whether metrics are printed, too.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    authorization: str = NONE
    logs_access: bool = False
    emf: bool = False
    drain_s: int = 30
    console: Path | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def requires_tokens(self) -> bool:
        """Whether a request needs a token or an API key."""
        return self.authorization == TOKENS

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_certificate else 'http'}://{host}:{self.port}"

    def to_variable(self) -> str:
        """Return the text of VARIABLE."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read VARIABLE."""
        fields: dict[str, Any] = json.loads(environment[VARIABLE])
        paths = {name: Path(fields[name]) for name in _PATHS if fields.get(name)}
        return cls(**{**fields, **paths, "limits": Limits(**fields["limits"])})
