"""Findings of checkov and parliament, and the reasons for which tools/lint/accepted.toml accepts some."""

import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

ACCEPTED = "tools/lint/accepted.toml"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What a tool reports: its rule, and where, as template and logical id."""

    rule: str
    template: str
    resource: str
    text: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it: its text may change with the tool's version."""
        return (self.rule, self.template, self.resource)


def read_accepted(root: Path) -> dict[tuple[str, str, str], str]:
    """Return the reasons by the keys of the findings. Raises ValueError if one has no reason."""
    found = {}
    for each in tomllib.loads((root / ACCEPTED).read_text(encoding="utf-8"))["accepted"]:
        if not each["reason"].strip():
            raise ValueError(f"{ACCEPTED}: {each['rule']} is accepted without a reason")
        for template, resources in each["where"].items():
            for resource in resources:
                found[each["rule"], template, resource] = each["reason"]
    return found


def compare(findings: Collection[Finding], accepted: dict[tuple[str, str, str], str]) -> Iterator[str]:
    """Yield findings that nobody accepted, and accepted ones that do not occur any more."""
    for each in sorted(findings):
        if each.key not in accepted:
            where = f"{each.template}: {each.resource}"
            yield f"{where}: {each.text} ({each.rule}): fix it, or write a reason into {ACCEPTED}"
    for rule, template, resource in sorted(accepted.keys() - {each.key for each in findings}):
        yield f"{template}: {resource} does not violate {rule} any more: remove it from {ACCEPTED}"
