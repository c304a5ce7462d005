"""The licences of what a release installs: `python licences.py` prints those of this environment, as JSON.

Standard library only: the trial runs it in the environment of keylane[local].
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

OURS = frozenset({"keylane", "keylane-client"})
_TOOLS = frozenset({"pip", "setuptools", "wheel"})
_COPYLEFT = ("AGPL", "GNU Affero", "GPL-2", "GPL-3", "GPLv2", "GPLv3", "GNU General Public")
_OTHERS = ("LGPL", "Lesser")
"""May be used beside ours."""


def licence_of(found: Mapping[str, list[str]]) -> str:
    """Return the licence that a distribution's metadata name, or ""."""
    if expression := next(iter(found.get("License-Expression", ())), ""):
        return expression
    classifiers = [each.rpartition(" :: ")[2] for each in found.get("Classifier", ()) if "License ::" in each]
    if classifiers:
        return ", ".join(classifiers)
    # Some have the whole text in this field.
    text = next(iter(found.get("License", ())), "").strip()
    return text.partition("\n")[0][:80]


def list_licences() -> dict[str, list[str]]:
    """Return name -> version and licence, for each distribution of this environment that is not ours."""
    found = {}
    for each in metadata.distributions():
        fields = {name: each.metadata.get_all(name) or [] for name in set(each.metadata)}
        name = fields["Name"][0]
        if name.lower() not in OURS | _TOOLS:
            found[name] = [each.version, licence_of(fields)]
    return found


def check_licences(found: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield a sentence for each package without a licence, or with one that would be ours, too."""
    for name, (_, licence) in found.items():
        if not licence:
            yield f"{name} names no licence"
        elif any(word in licence for word in _COPYLEFT) and not any(word in licence for word in _OTHERS):
            yield f"{name} has the licence {licence}"


def render_licences(found: Mapping[str, Iterable[str]]) -> str:
    """Return the table of a release."""
    rows = [f"| {name} | {version} | {licence} |" for name, (version, licence) in sorted(found.items())]
    head = "# Licences of what `pip install 'keylane[local]'` installs\n\n| package | version | licence |"
    return "\n".join([head, "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    json.dump(list_licences(), sys.stdout)
