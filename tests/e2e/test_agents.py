"""The official client of the Model Context Protocol uses each tool."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from keylane.api.mcp.protocol import TOOLS
from keylane.api.mcp.versions import STATELESS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mcp import Client as McpClient
    from tests.e2e.client import Client

READING = [tool.name for tool in TOOLS if not tool.is_write]
MODES = ["legacy", "auto", STATELESS]
"""With the handshake, by what the server says that it speaks, and without a handshake."""


def as_agent(client: Client, mode: str, use: Callable[[McpClient], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a program does with the tools of an API."""
    from mcp import Client as McpClient  # noqa: PLC0415 (it loads for seconds, and few tests need it)

    async def run() -> Any:
        async with McpClient(f"{client.url}/mcp", mode=mode) as agent:
            return await use(agent)

    return asyncio.run(run())


async def ask(agent: McpClient, tool: str, **arguments: Any) -> Any:
    """Return a tool's result, which is no error, and the same as structure and as text."""
    result = await agent.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_lists_the_tools_and_uses_each(client, key, mode):
    name = f"{key.decode()}-{mode}"
    value = {"to": name, "fare": 12.5, "paid": True}
    position = client.put("bookings", name.encode(), json.dumps(value).encode())
    assert client.get_at("bookings", name.encode(), position).status == 200

    async def use(agent: McpClient) -> None:
        assert [tool.name for tool in (await agent.list_tools()).tools] == READING
        assert "bookings" in [each["topic"] for each in (await ask(agent, "list_topics"))["topics"]]
        described = await ask(agent, "describe_topic", topic="bookings")
        assert {"name": "fare", "type": "number"} in described["fields"]
        assert described["sample"]
        assert described["age_ms"] >= 0

        found = await ask(agent, "get", topic="bookings", key=name)
        assert (found["value"], found["position"]) == (value, position)
        assert found.keys() >= {"watermark", "age_ms", "etag"}
        page = await ask(agent, "find", topic="bookings", where={"to": name, "fare": "10..20"})
        assert [each["key"] for each in page["records"]] == [name]
        assert page.keys() >= {"watermarks", "age_ms"}
        past = await ask(agent, "history", topic="bookings", key=name)
        assert [each["position"] for each in past["records"]] == [position]

        same = await ask(agent, "wait_for_change", topic="bookings", key=name, etag=found["etag"], seconds=1)
        assert (same["changed"], same["position"]) == (False, position)
        changing = asyncio.ensure_future(
            ask(agent, "wait_for_change", topic="bookings", key=name, etag=found["etag"])
        )
        await asyncio.to_thread(client.put, "bookings", name.encode(), b'{"to": "Bern"}')
        assert (await changing)["value"] == {"to": "Bern"}

    as_agent(client, mode, use)


def test_an_agent_reads_what_went_wrong_and_what_to_ask_instead(client):
    async def use(agent: McpClient) -> None:
        result = await agent.call_tool("get", {"topic": "nowhere", "key": "a"})
        assert result.is_error
        assert result.structured_content["problem"] == "unknown-topic"
        assert "list_topics" in result.structured_content["instead"]
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 (see `as_agent`)

        with pytest.raises(MCPError, match="Unknown tool: put"):
            await agent.call_tool("put", {"topic": "bookings", "key": "a", "value": 1})

    as_agent(client, "auto", use)


def test_pages_go_on_by_their_cursors(client, key):
    prefix = f"{key.decode()}|"
    positions = [client.put("trips", f"{prefix}{n}".encode(), b'{"a": 1}') for n in range(5)]
    for n, position in enumerate(positions):
        assert client.get_at("trips", f"{prefix}{n}".encode(), position).status == 200

    async def use(agent: McpClient) -> list[str]:
        found: list[str] = []
        asked: dict[str, Any] = {"topic": "trips", "prefix": prefix, "limit": 2}
        for _ in positions:
            page = await ask(agent, "find", **asked)
            found += [each["key"] for each in page["records"]]
            if "next" not in page:
                break
            asked["cursor"] = page["next"]
        return found

    assert as_agent(client, "auto", use) == [f"{prefix}{n}" for n in range(5)]
