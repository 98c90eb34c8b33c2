"""The official Python client of the Model Context Protocol: does what each line of standard input says, and prints what
came of it, a line of JSON each.

python assistant.py MODE http URL KEY
python assistant.py MODE stdio PROGRAM ARGUMENT...

MODE is `legacy`, which begins with initialize, or `auto`, which tries the newest revision first.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


def transport(kind, rest):
    if kind == "stdio":
        return StdioServerParameters(command=rest[0], args=rest[1:])
    url, key = rest
    headers = {"Authorization": f"Bearer {key}"}
    return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=60))


async def pages(fetch, name):
    found, cursor = [], None
    while True:
        page = await fetch(cursor=cursor)
        found.extend(item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in getattr(page, name))
        cursor = page.next_cursor
        if cursor is None:
            return found


async def done(client, line):
    match line["do"]:
        case "about":
            info = client.server_info
            return {"revision": client.protocol_version, "name": info.name, "instructions": client.instructions}
        case "tools":
            return await pages(client.list_tools, "tools")
        case "call":
            result = await client.call_tool(
                line["name"], line.get("arguments", {}), read_timeout_seconds=line.get("seconds")
            )
            return {
                "text": result.content[0].text,
                "structured": result.structured_content,
                "failed": bool(result.is_error),
            }
        case "resources":
            return await pages(client.list_resources, "resources")
        case "templates":
            return await pages(client.list_resource_templates, "resource_templates")
        case "read":
            return (await client.read_resource(line["uri"])).contents[0].text
        case "prompts":
            return await pages(client.list_prompts, "prompts")
        case "prompt":
            result = await client.get_prompt(line["name"], line.get("arguments", {}))
            return result.messages[0].content.text


async def main():
    mode, kind, *rest = sys.argv[1:]
    async with Client(transport(kind, rest), mode=mode) as client:
        for text in sys.stdin:
            line = json.loads(text)
            try:
                told = {"result": await done(client, line)}
            except MCPError as error:
                told = {"error": {"code": error.code, "message": error.error.message}}
            print(json.dumps(told), flush=True)


asyncio.run(main())
