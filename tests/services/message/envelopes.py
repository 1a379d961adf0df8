"""V2 envelopes and device keys in the form that the current SDK sends; the made-up ones here open for nobody."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from tests.support.messaging import Client


def envelope(sender: str, to: str, wraps: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """An envelope wrapped for (AID, device) pairs."""
    rows = [[aid, device, "peer", "peer_device_prekey", "fp", "sha256:0", "bm9uY2U=", "a2V5"] for aid, device in wraps]
    return {
        "type": "e2ee.p2p_encrypted",
        "version": "v2",
        "ciphertext": "AAAA",
        "recipients": rows,
        "aad": {"from": sender, "to": to},
        **more,
    }


async def publish_key(client: Client, seed: str = "") -> dict[str, Any]:
    """message.v2.put_peer_pk of a client's device."""
    der = hashlib.sha512(f"{client.who.device_id}{seed}".encode()).digest()
    return await client.call(
        "message.v2.put_peer_pk",
        peer_aid=client.who.aid,
        key_source="peer_device_prekey",
        spk_id="sha256:" + hashlib.sha256(der).hexdigest()[:16],
        spk_pk=base64.b64encode(der).decode(),
        spk_signature=base64.b64encode(der).decode(),
        spk_timestamp=1_760_000_000,
    )
