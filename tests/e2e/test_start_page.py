"""docs/start.md, pasted: its writes and reads, one block after the other, without a pause."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path("docs/start.md")
_OF_STACK = ("keylane up", "keylane down", "keylane status", "cat >")


def commands_of(section: str) -> list[str]:
    """Return the commands of a section's console blocks that need nothing but a stack that runs."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not any(each in line for each in _OF_STACK)]


def paste(url: str, commands: list[str]) -> str:
    """Return what a shell prints that is given the commands at once."""
    script = "\n".join(commands).replace("localhost:8080", url.removeprefix("http://"))
    script = script.replace(".venv/bin/keylane", f"{sys.executable} -m keylane_client.cli")
    done = subprocess.run(
        ["bash", "-e"],
        input=script,
        env={**os.environ, "KEYLANE_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_writes_are_read_as_the_page_says(applied_stack):
    commands = commands_of("First writes")
    assert len(commands) == 5
    printed = paste(applied_stack.http_url, commands)
    assert printed.count('"dest": "ORD"') == 1
    assert printed.count("key-absent") == 1
    assert printed.index("ORD") < printed.index("key-absent")


def test_the_bookings_are_read_as_the_page_says(applied_stack):
    commands = commands_of("Your own topic")
    assert len(commands) == 6
    printed = paste(applied_stack.http_url, commands)
    assert printed.count("key-absent") == 1
    _, _, after = printed.partition("key-absent")
    assert '"key": "ann|2026-11-09", "key_format": "text", "records": [' in after
    assert after.index('"deleted": true') < after.index('{"from":"Basel","to":"Bern"}')
