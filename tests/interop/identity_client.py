"""Run by the environment of fastaun, not by ours: what its own checks say about a node's identity half.

python identity_client.py DIR STEP    STEP: life | check | revoked
"""

import asyncio
import sys
from typing import Any

ALICE = "alice.edge.test"


async def main(path: str, step: str) -> None:
    from aun_core import AIDStore, AUNClient  # type: ignore[import-not-found]
    from aun_core.errors import AuthError  # type: ignore[import-not-found]
    from cryptography import x509

    store = AIDStore(aun_path=path, encryption_seed="")

    def done(result: Any) -> None:
        assert result.ok, result.error

    if step == "life":
        done(await store.register(ALICE, type="human"))
        client = AUNClient(store.load(ALICE).data["aid"])
        await client.connect({"auto_reconnect": False})
        assert (await client.call("meta.ping", {}))["pong"] is True
        assert (await client.call("meta.status", {}))["aid"] == ALICE
        await client.close()
        done(await store.renew_cert(ALICE))
        done(await store.rekey(ALICE))
    identity = store.load(ALICE).data["aid"]
    client = AUNClient(identity)
    certificate = x509.load_pem_x509_certificate(identity.cert_pem.encode())
    auth, gateway = client._auth, store._load_cached_gateway_url(ALICE)
    if step == "revoked":
        for check in (auth.verify_peer_certificate, auth.verify_ownership_certificate):
            told = ""
            try:
                await check(gateway, certificate, ALICE)
            except AuthError as error:
                told = str(error)
            assert "revoked" in told, told
    else:
        await client.authenticate()
        await auth.verify_peer_certificate(gateway, certificate, ALICE)
        await auth.verify_ownership_certificate(gateway, certificate, ALICE)
    await client.close()
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
    print("ok")
