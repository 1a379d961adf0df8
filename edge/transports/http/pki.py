"""Discovery and PKI by HTTP (spec aun-connect §3.2, §8.1): open, read-only, the same on every Host."""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from edge.contract.principal import GUEST
from edge.contract.wire import dumps
from edge.dispatch.dispatcher import Dispatcher
from edge.services.ca import OCSP_REQUEST
from edge.transports.http.app import door_of, json_response, read_body

PEM = "application/x-pem-file"
TRUST_LIST = (
    "/pki/trust-roots.json",
    "/pki/trust-roots",
    "/pki/trust-root.json",
    "/trust-root.json",
    "/.well-known/aun/trust-roots.json",
)


def routes(dispatcher: Dispatcher) -> list[BaseRoute]:
    """Every route asks the `http` surface as a guest."""

    async def ask(came: Request, name: str, /, **params: object) -> Any:
        outcome = await dispatcher.call("http", name, dumps(params), GUEST, door=door_of(came))
        return outcome.result

    async def gateway(request: Request) -> Response:
        door = door_of(request)
        return json_response(await ask(request, "meta.gateways", base=door.base, address=door.address))

    async def certificate(request: Request) -> Response:
        wanted = request.query_params.get("cert_fingerprint", "")
        found = await ask(request, "ca.get_cert", aid=request.path_params["aid"], cert_fingerprint=wanted)
        answer = _pem(found.cert)
        if request.query_params.get("consistency") == "authoritative":
            answer.headers.update(_observed(found))
        return answer

    async def chain(request: Request) -> Response:
        return _pem((await ask(request, "ca.get_cert_chain")).bundle)

    async def root(request: Request) -> Response:
        return _pem((await ask(request, "ca.get_cert_chain")).root)

    async def tls_root(request: Request) -> Response:
        return _pem((await ask(request, "ca.get_cert_chain")).tls_root)

    async def crl(request: Request) -> Response:
        return json_response(await ask(request, "ca.get_crl"))

    async def crl_der(request: Request) -> Response:
        lines = (await ask(request, "ca.get_crl")).crl_pem.split("\n")
        der = base64.b64decode("".join(line for line in lines if line and not line.startswith("-")))
        return Response(der, media_type="application/pkix-crl")

    async def status(request: Request) -> Response:
        found = await ask(request, "ca.ocsp", serial=request.path_params["serial"])
        answer = json_response(found)
        answer.headers["cache-control"] = "no-cache"
        return answer

    async def question(request: Request) -> Response:
        asked = base64.b64encode(await read_body(request, OCSP_REQUEST)).decode()
        found = await ask(request, "ca.ocsp_request", request=asked)
        return Response(base64.b64decode(found.response), media_type="application/ocsp-response")

    async def trust_roots(request: Request) -> Response:
        return json_response(await ask(request, "meta.trust_roots"))

    return [
        Route("/.well-known/aun-gateway", gateway, methods=["GET"]),
        Route("/pki/cert/{aid}", certificate, methods=["GET"]),
        Route("/pki/chain", chain, methods=["GET"]),
        Route("/ca/cert", chain, methods=["GET"]),
        Route("/pki/root.crt", root, methods=["GET"]),
        Route("/root.crt", root, methods=["GET"]),
        Route("/pki/tls-root.crt", tls_root, methods=["GET"]),
        Route("/pki/crl.json", crl, methods=["GET"]),
        Route("/pki/crl", crl_der, methods=["GET"]),
        Route("/pki/ocsp/{serial}", status, methods=["GET"]),
        Route("/pki/ocsp", question, methods=["POST"]),
        *(Route(path, trust_roots, methods=["GET"]) for path in TRUST_LIST),
    ]


def _observed(found: Any) -> dict[str, str]:
    """What makes an answer authoritative: the state of the certificate, seen just now (aun-services §3.6)."""
    return {
        "x-aun-cert-consistency": "authoritative",
        "x-aun-cert-lifecycle-state": found.state,
        "x-aun-cert-fingerprint": f"sha256:{found.cert_sha256}",
        "x-aun-cert-observed-at": found.observed_at,
        "cache-control": "no-cache",
    }


def _pem(text: str) -> Response:
    return Response(text, media_type=PEM)
