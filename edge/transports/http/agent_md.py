"""`/agent.md`: the card of the AID that the Host header names (spec aun-connect §3.8). Routed by Host, never by SNI."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from edge.contract.errors import InvalidParams, NotFound
from edge.contract.limit import declare
from edge.contract.principal import GUEST
from edge.contract.wire import dumps
from edge.dispatch.dispatcher import Dispatcher
from edge.protocol.aid import host
from edge.transports.http.app import door_of, error_response, has_current, json_response, principal_of, read_body

BODY = declare("agent_md.body_octets", 16_384, "bytes", "of an agent.md upload, before its own limits are looked at")

FORMAT = "x-aun-signature-format"
WHOLE = "multi-v1"
OWNERSHIP = "x-aun-ownership-check"


def routes(dispatcher: Dispatcher) -> list[BaseRoute]:
    """GET, HEAD and PUT."""

    async def get(request: Request) -> Response:
        door = door_of(request)
        params = {
            "aid": _aid(request),
            "base": door.base,
            "address": door.address,
            "whole": request.headers.get(FORMAT, "") == WHOLE,
        }
        entity = await _entity(dispatcher, request)
        try:
            outcome = await dispatcher.call("http", "agent_md.get", dumps(params), GUEST, door=door)
        except NotFound as error:
            answer = error_response(error)
            answer.headers.update(entity)
            return answer
        found: Any = outcome.result
        headers = {
            **entity,
            "etag": found.etag,
            "last-modified": formatdate(found.last_modified, usegmt=True),
            "vary": "X-AUN-Signature-Format, Host",
            "cache-control": "no-cache",
        }
        if has_current(request, found.etag):
            return Response(status_code=304, headers=headers)
        return Response(found.content.encode(), headers=headers, media_type="text/markdown; charset=utf-8")

    async def put(request: Request) -> Response:
        who = await principal_of(request)
        body = await read_body(request, BODY)
        try:
            content = body.decode()
        except UnicodeDecodeError:
            raise InvalidParams("agent.md is not UTF-8") from None
        params = {
            "aid": _aid(request),
            "content": content,
            "if_match": request.headers.get("if-match", ""),
            "if_none_match": request.headers.get("if-none-match", ""),
        }
        outcome = await dispatcher.call("http", "agent_md.put", dumps(params), who, door=door_of(request))
        stored: Any = outcome.result
        answer = json_response(stored)
        answer.headers["etag"] = stored.etag
        return answer

    return [
        Route("/agent.md", get, methods=["GET"]),
        Route("/agent.md", put, methods=["PUT"]),
    ]


async def _entity(dispatcher: Dispatcher, request: Request) -> dict[str, str]:
    """Who owns a group, and which certificate it has now, for callers that ask (aun-services §1.7, §3.6)."""
    if request.headers.get(OWNERSHIP) != "1":
        return {}
    try:
        outcome = await dispatcher.call("http", "group.entity", dumps({"group_id": _aid(request)}), GUEST)
    except (NotFound, InvalidParams):
        return {}
    found: Any = outcome.result
    return {
        "x-aun-entity-owner-aid": found.owner_aid,
        "x-aun-entity-cert-fingerprint": f"sha256:{found.cert_sha256}",
        "x-aun-ownership-status": "not_applicable",
        "x-aun-entity-verification-status": found.status,
    }


def _aid(request: Request) -> str:
    """The AID that the Host header names; an address or a bare name has no card."""
    name = host(request.headers.get("host", ""))
    if "." not in name or name.replace(".", "").isdigit():
        raise NotFound("no agent.md here: the Host header names the AID")
    return name
