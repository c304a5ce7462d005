"""What a scoped caller may see: the access policy of a server, the caller's tokens, and the same rules again.

The policy is that of a stack; a token is of one schedule, whose claims name its keys and values. Whether a
record is permitted is worked out here from its key and its JSON alone.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.issuers import SigningKey, jwks
from tests.torture.found import Question

if TYPE_CHECKING:
    from tests.torture.configurations import Configuration
    from tests.torture.schedule import Schedule

ISSUER = "torture"
FIELD = "status"
STATES = ("open", "paid")
"""The values of the field that are permitted, of three; each begins with what names the schedule."""
GROUPS = (0, 3, 4, 7)
"""The beginnings of keys that are permitted, of eleven."""
CLIENT = "function"
"""The client whose keys are permitted, of four."""
VALID_S = 6 * 3_600
"""Of a token: longer than any schedule."""
NOBODY: tuple[str, ...] = ()


def is_scoped(schedule: Schedule) -> bool:
    """Whether a schedule has a scoped reader: each second has, so of 50 in a row each kind of event once."""
    return schedule.seed % 2 == 1


class StackIssuer:
    """The issuer of a stack's tokens, with its key, and the policy that knows it.

    The rules are by a field for the first topic that has fields, and by beginnings of keys for the others.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._key = SigningKey("EdDSA")
        with_fields = [shape.name for shape in configuration.shapes if shape.options.fields]
        self.by_field = with_fields[0] if with_fields else None
        self.by_key = tuple(
            shape.name for shape in configuration.shapes if not with_fields or shape.name != with_fields[0]
        )

    @property
    def policy(self) -> str:
        """KEYLANE_ACCESS."""
        rules: list[dict[str, Any]] = [
            {"name": f"keys {number}", "issuer": ISSUER, "read": list(self.by_key), "key": key}
            for number, key in enumerate(
                [*(f"${{run}}-{group}_*" for group in GROUPS), f"${{run}}-{CLIENT}-*"], 1
            )
        ]
        if self.by_field is not None:
            where = {FIELD: "${states}"}
            rules.append({"name": "values", "issuer": ISSUER, "read": [self.by_field], "where": where})
        issuer = {"issuer": ISSUER, "audience": ISSUER, "algorithms": ["EdDSA"], "jwks": jwks(self._key)}
        return json.dumps({"issuers": [issuer], "rules": rules})

    def rights(self, schedule: Schedule) -> Rights:
        """What the scoped caller of a schedule may see."""
        return Rights(schedule.prefix[:-1].decode(), self.by_field, self.by_key)

    def token(self, rights: Rights) -> str:
        """A token of the scoped caller of a schedule."""
        claims = {"iss": ISSUER, "aud": ISSUER, "sub": "reader", "exp": int(time.time()) + VALID_S}
        return self._key.token({**claims, "run": rights.run, "states": list(rights.states)})


@dataclass(frozen=True, slots=True)
class Rights:
    """What the scoped caller of a schedule may see. `run`: what all its keys and values begin with."""

    run: str
    by_field: str | None
    by_key: tuple[str, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The values of the field that are permitted."""
        return tuple(f"{self.run}-{state}" for state in STATES)

    def has_key(self, topic: str, key: bytes) -> bool:
        """Whether any record of a key may be seen."""
        if topic == self.by_field:
            return True
        beginnings = [*(f"{self.run}-{group}_" for group in GROUPS), f"{self.run}-{CLIENT}-"]
        return topic in self.by_key and key.startswith(tuple(map(str.encode, beginnings)))

    def question(self, topic: str, key: bytes, asked: Question | None = None) -> Question:
        """The question whose answer a read of a key is: what was asked for, and may be seen."""
        asked = asked or Question(())
        if not self.has_key(topic, key):
            return asked._replace(permitted=NOBODY)
        return asked._replace(permitted=self.states) if topic == self.by_field else asked
