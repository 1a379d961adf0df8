"""Run by the interpreter of the published a2a-sdk 0.3: one scripted conversation, one JSON line of what it saw.

Usage: a2a_client.py BASE_URL TOKEN TEXT [TEXT …]. Each text is a message of its own; the last task is asked for
again and then canceled, and one message goes to a task that does not exist. With `--refused` before the only text:
the status and the reason that the SDK's exception leads to.
"""

import asyncio
import json
import sys
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import Message, Part, Role, TaskIdParams, TaskQueryParams, TextPart


def message(text: str, task_id: str | None = None) -> Message:
    """A user's message."""
    return Message(role=Role.user, message_id=str(uuid4()), parts=[Part(root=TextPart(text=text))], task_id=task_id)


async def failure(call) -> int:
    """The JSON-RPC code that a call ends with."""
    try:
        await call
    except A2AClientJSONRPCError as error:
        return error.error.code
    return 0


async def refusal(call) -> dict:
    """What an application learns of a call that is not let in: the SDK's own text leaves the body out."""
    try:
        await call
    except A2AClientHTTPError as error:
        return {"status": error.status_code, "reason": error.__cause__.response.json()["message"]}
    return {}


async def send(client, said: Message):
    """message/send; the task that comes back."""
    found = None
    async for event in client.send_message(said):
        found = event[0] if isinstance(event, tuple) else event
    return found


async def main(base: str, token: str, texts: list[str]) -> dict:
    """The conversation."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        early = await A2ACardResolver(http, base, "/.well-known/agent.json").get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        if texts[0] == "--refused":
            return await refusal(send(client, message(texts[1])))
        tasks = [await send(client, message(text)) for text in texts]
        again = await client.get_task(TaskQueryParams(id=tasks[-1].id, history_length=0))
        return {
            "name": card.name,
            "url": card.url,
            "skills": [skill.id for skill in card.skills],
            "schemes": sorted(card.security_schemes or {}),
            "same_card": early.url == card.url,
            "tasks": [task.model_dump(mode="json", by_alias=True, exclude_none=True) for task in tasks],
            "again": again.model_dump(mode="json", by_alias=True, exclude_none=True),
            "cancel": await failure(client.cancel_task(TaskIdParams(id=tasks[-1].id))),
            "unknown": await failure(client.get_task(TaskQueryParams(id="nobody"))),
            "continue": await failure(send(client, message("more", "nobody"))),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))))
