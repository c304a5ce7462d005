"""The audit of what ships: a vulnerability fails, and advisories out of reach are not taken as safe."""

from __future__ import annotations

import json

from keylane_build import audit

SAFE = {"name": "redis", "version": "8.1.0", "vulns": []}
UNKNOWN = {"name": "mmh3", "skip_reason": "Dependency not found on PyPI and could not be audited"}
BROKEN = {"name": "urllib3", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.0"]}]}


def report(*dependencies):
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_a_vulnerability_is_named_with_the_version_that_fixes_it():
    _, _, found = audit.describe_audit(report(SAFE, BROKEN))
    assert found == ["urllib3 1.0 has PYSEC-1: fixed in 2.0"]
    assert audit.render_audit(report(SAFE, BROKEN)).splitlines() == [
        "2 packages, 1 vulnerabilities",
        *found,
    ]


def test_advisories_that_cannot_be_reached_are_reported_and_not_taken_as_safe():
    for output in (report(UNKNOWN), ""):
        assert "NOT AUDITED: pip-audit could not reach the advisories" in audit.render_audit(output)
    assert audit.render_audit(report(SAFE, UNKNOWN)).endswith("NOT AUDITED: mmh3")


def test_layer_package_and_images_are_audited_at_the_versions_that_ship():
    found = audit.shipped()
    assert found.keys() == {"layer", "job", "image-job", "image-server"}
    versions = {pin.partition("==")[0]: pin for pins in found.values() for pin in pins}
    assert len(versions) == len({pin for pins in found.values() for pin in pins}), "two versions of a package"
    assert all("==" in each for pins in found.values() for each in pins)
    assert any(each.startswith("pyarrow==") for each in found["job"])
