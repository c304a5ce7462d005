"""docs/start.md, use/find.md and use/snapshots.md, pasted: one block after the other, without a pause."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from keylane_client import Client, between

PAGE = Path("docs/start.md")
_OF_STACK = ("keylane up", "keylane down", "keylane status", "cat >")


FIND_PAGE = Path("docs/use/find.md")
SNAPSHOTS_PAGE = Path("docs/use/snapshots.md")


def commands_of(section: str, page: Path = PAGE) -> list[str]:
    """Return the commands of a section's console blocks that need nothing but a stack that runs."""
    text = page.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not any(each in line for each in _OF_STACK)]


def paste(url: str, commands: list[str]) -> str:
    """Return what a shell prints that is given the commands at once."""
    script = "\n".join(commands).replace("localhost:8080", url.removeprefix("http://"))
    script = re.sub(
        r"(?:\.venv/bin/|\b)keylane (?=[a-z])", lambda _: f"{sys.executable} -m keylane_client.cli ", script
    )
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


def write(url: str, delays: dict[str, tuple[str, int]]) -> None:
    """Write flights, and wait until the state has them."""
    with Client(url) as keylane:
        topic = keylane.session().topic("delayed")
        for record in [each for each in topic.scan() if each.key not in delays]:
            topic.delete(record.key)  # of other tests
        for key, (origin, delay) in delays.items():
            topic.put(key, {"origin": origin, "dest": "SFO", "dep_delay": delay})
        assert topic.find(origin=between()).count() >= len(delays)


def test_late_flights_are_found_as_the_page_says(applied_stack):
    commands = commands_of("Try it", FIND_PAGE)
    assert len(commands) == 7
    delays = {"N1": ("JFK", 75), "N2": ("JFK", 900), "N3": ("JFK", 60), "N4": ("JFK", 59), "N5": ("LGA", 99)}
    write(applied_stack.http_url, delays)
    script = [each.replace("/flights/", "/delayed/").replace(" flights ", " delayed ") for each in commands]
    printed = paste(applied_stack.http_url, script)
    page, end = json.JSONDecoder().raw_decode(printed)
    count, end = json.JSONDecoder().raw_decode(printed, end)
    assert [each["value"]["dep_delay"] for each in page["records"]] == [900, 75]
    assert (page["scanned"], count["count"]) == (2, 3)
    lines = printed[end:].splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["N2", "N1", "N3", "N14228", "0"]


def test_the_python_of_the_page_about_fields_runs_as_it_is(applied_stack):
    [example] = re.findall(r"```python\n(.*?)```", FIND_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    example = example.replace("http://localhost:8080", applied_stack.http_url).replace("flights", "delayed")
    write(applied_stack.http_url, {"N2": ("JFK", 900)})
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=60
    )
    assert "N2 SFO 900" in done.stdout.splitlines(), done.stderr


def test_a_snapshot_and_its_changes_are_read_as_the_page_says(applied_stack, tmp_path: Path):
    commands = commands_of("Try it", SNAPSHOTS_PAGE)
    assert len(commands) == 8
    delays = {"N1": ("JFK", 75), "N2": ("JFK", 900), "N5": ("LGA", 99)}
    write(applied_stack.http_url, delays)
    script = [each.replace("/flights/", "/delayed/") for each in commands]
    printed = paste(applied_stack.http_url, [f"cd {tmp_path}", *script]).splitlines()
    rows = {json.loads(line)[0] for line in printed if line.startswith('["N')}
    assert len(rows) >= 3
    begin, end = (json.loads(line) for line in printed if line.startswith('{"'))
    assert (begin["begin"]["topic"], end["end"].keys()) == ("delayed", {"at"})
    assert "complete" in printed
    assert '["N14228","OSL"]' in printed
    assert printed[-1].split(maxsplit=1)[1] == '{"dest":"SFO"}'


def test_a_topic_is_exported_as_the_page_says_and_imported_again(applied_stack, tmp_path: Path):
    commands = commands_of("Into a file", SNAPSHOTS_PAGE)
    assert len(commands) == 2
    write(applied_stack.http_url, {"N1": ("JFK", 75), "N2": ("JFK", 900), "N5": ("LGA", 99)})
    script = [
        each.replace(" flights ", " delayed ").replace("python ", f"{sys.executable} ") for each in commands
    ]
    again = [
        "keylane export delayed -o all.jsonl",
        "keylane import delayed all.jsonl",
        "keylane count delayed",
    ]
    printed = paste(
        applied_stack.http_url, [f"cd {tmp_path}", "keylane count delayed", *script, *again]
    ).splitlines()
    assert re.fullmatch(r"SFO +[2-9]", next(line for line in printed if line.startswith("SFO")))
    assert printed[-2] == f"{printed[0]} rows written, 0 skipped"
    assert printed[-1] == printed[0]


def test_the_python_of_the_page_about_snapshots_runs_as_it_is(applied_stack):
    write(applied_stack.http_url, {"N1": ("JFK", 75)})
    printed = run_example("A dict that stays current", applied_stack.http_url)
    assert re.fullmatch(r"[1-9]\d* aircraft left JFK last\nOSL\n", printed)


def run_example(section: str, url: str) -> str:
    """Return what the Python of a section of the page about snapshots prints."""
    text = SNAPSHOTS_PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    example = text.partition("```python\n")[2].partition("```")[0]
    example = example.replace("http://localhost:8080", url).replace('"flights"', '"delayed"')
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
