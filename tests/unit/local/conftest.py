"""Programs that tests make, on a PATH that has nothing else."""

from __future__ import annotations

import pytest


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that creates shell scripts on that PATH, or elsewhere."""
    folder = tmp_path / "a path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def make(name, script="exit 0", where=folder):
        program = where / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        program.chmod(0o755)
        return str(program)

    return make
