"""docs/use/agents.md and docs/http/mcp.md, pasted: the program of the page, the request, and the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.e2e.test_start_page import paste

AGENTS = Path("docs/use/agents.md").read_text(encoding="utf-8")
PROTOCOL = Path("docs/http/mcp.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_program_prints_topics_and_records(client, capsys):
    position = client.put("delayed", b"agents-page", b'{"origin": "JFK", "dest": "SFO"}')
    assert client.get_at("delayed", b"agents-page", position).status == 200
    [program] = blocks(AGENTS, "python")
    # Of the tests' topics it is this one whose fields the program asks for.
    program = program.replace("http://localhost:8080", client.url).replace('"flights"', '"delayed"')
    exec(compile(program, "agents.md", "exec"), {})  # noqa: S102 (as a reader does)
    printed = capsys.readouterr().out
    assert "delayed ['get', 'wait_for_change'" in printed
    assert "agents-page SFO" in printed


def test_the_request_of_the_protocol_s_page_is_answered_as_it_says(applied_stack):
    [block] = blocks(PROTOCOL, "console")
    command = block[2:].partition("\n{")[0]
    printed = json.loads(paste(applied_stack.http_url, [command]))
    assert printed["id"] == 1
    assert {"content", "isError"} <= printed["result"].keys()


def test_the_error_of_the_protocol_s_page_is_answered_as_it_says(applied_stack):
    [shown] = blocks(PROTOCOL, "json")
    call = {"name": "find", "arguments": {"topic": "flights"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    asked = f"curl -s localhost:8080/mcp -H 'Content-Type: application/json' -d '{message}'"
    printed = json.loads(paste(applied_stack.http_url, [asked]))
    assert printed["result"]["structuredContent"] == json.loads(shown)


def test_the_settings_of_programs_are_json_with_the_address():
    found = [json.loads(each) for each in blocks(AGENTS, "json")]
    assert [list(each) for each in found] == [["servers"], ["mcpServers"]]
    assert all("http://localhost:8080/mcp" in json.dumps(each) for each in found)
