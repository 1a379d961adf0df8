"""Keys that devices publish for end-to-end encryption; the node stores and hands them out (spec §5.1, §5.2)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from edge.contract.errors import InvalidParams, NotPermitted, RateLimited, UnknownAid
from edge.contract.limit import Limits
from edge.contract.op import Call, op
from edge.contract.store import Store, Unit
from edge.contract.wire import decode, dumps
from edge.protocol import aid as aids
from edge.services.message import records as r
from edge.services.message.drafts import sender_of
from edge.services.message.memory import Known
from edge.store import messages
from edge.store.messages import Spk

KEY_SOURCE = "peer_device_prekey"
PREKEY_AGE_MS = 30 * 86_400_000
"""Readers refuse older prekeys (first generation), so they are not handed out."""


class KeyService:
    """One current key per (AID, device), of either generation."""

    def __init__(self, node: Store, known: Known, limits: Limits) -> None:
        self._node, self._known, self._limits = node, known, limits

    @op(
        "message.v2.put_peer_pk",
        scope="message:write",
        wire={"aun": ("message.v2.put_peer_pk",)},
        raises=(InvalidParams, NotPermitted, RateLimited),
        writes=True,
    )
    def put_peer_pk(self, call: Call[r.PutPeerKey], unit: Unit) -> r.Stored:
        """Publish this device's signed prekey; the newest one counts."""
        asked, aid = call.params, sender_of(call.who)
        if aids.normal(asked.peer_aid) != aid:
            raise NotPermitted("peer_aid is not the caller's")
        if asked.key_source != KEY_SOURCE:
            raise InvalidParams(f"key_source must be {KEY_SOURCE}")
        if len(asked.spk_pk) + len(asked.spk_signature) > self._limits[r.SPK_OCTETS]:
            raise self._limits.refuse(r.SPK_OCTETS)
        if asked.spk_id != "sha256:" + hashlib.sha256(_decoded(asked.spk_pk)).hexdigest()[:16]:
            raise InvalidParams("spk_id is not the fingerprint of spk_pk")
        if len(_decoded(asked.spk_signature)) != 64:
            raise InvalidParams("spk_signature must be 64 bytes r||s")
        self._fit_device(call.who.device_id, {spk.device for spk in messages.spks(unit, aid)})
        spk = Spk(call.who.device_id, asked.spk_id, asked.spk_pk, asked.spk_signature, asked.spk_timestamp)
        messages.put_spk(unit, aid, spk, unit.wall_us // 1000)
        return r.Stored()

    @op(
        "message.v2.bootstrap",
        scope="message:read",
        wire={"aun": ("message.v2.bootstrap",)},
        raises=(InvalidParams, UnknownAid, NotPermitted),
    )
    async def bootstrap(self, call: Call[r.Bootstrap]) -> r.Bootstrapped:
        """The devices to encrypt for: the peer's, and the caller's own."""
        peer, own = aids.normal(call.params.peer_aid), sender_of(call.who)

        def work(unit: Unit) -> r.Bootstrapped:
            if not self._known(unit, peer):
                raise UnknownAid(f"aid not registered: {peer}")
            devices = [_device(peer, spk) for spk in messages.spks(unit, peer)]
            if not devices and not messages.prekeys(unit, peer):
                devices = [r.DeviceKey(aid=peer, device_id="")]
            return r.Bootstrapped(
                peer_devices=devices,
                self_devices=[_device(own, spk) for spk in messages.spks(unit, own)],
                audit_recipients=[],
                e2ee_wrap_policy=None,
            )

        return await self._node.read(work)

    @op(
        "message.e2ee.put_prekey",
        scope="message:write",
        wire={"aun": ("message.e2ee.put_prekey",)},
        raises=(InvalidParams, NotPermitted, RateLimited),
        writes=True,
    )
    def put_prekey(self, call: Call[r.PutPrekey], unit: Unit) -> r.Stored:
        """Publish this device's prekey of the first generation; the newest one counts."""
        asked, aid = call.params, sender_of(call.who)
        device = asked.device_id or call.who.device_id
        if call.who.device_id and device != call.who.device_id:
            raise NotPermitted("device_id is not the connection's")
        body = dumps(asked)
        if len(body) > self._limits[r.KEY_OCTETS]:
            raise self._limits.refuse(r.KEY_OCTETS)
        self._fit_device(device, {name for name, _, _ in messages.prekeys(unit, aid)})
        messages.put_prekey(unit, aid, device, body, unit.wall_us // 1000)
        return r.Stored()

    @op(
        "message.e2ee.get_prekey",
        scope="message:read",
        wire={"aun": ("message.e2ee.get_prekey",)},
        raises=(InvalidParams,),
    )
    async def get_prekey(self, call: Call[r.GetPrekey]) -> r.Prekeys:
        """The prekeys of an AID's devices, newest first; reading does not use them up."""
        aid = aids.normal(call.params.aid)

        def work(unit: Unit) -> list[dict[str, Any]]:
            oldest = unit.wall_us // 1000 - PREKEY_AGE_MS
            return [_prekey(device, body) for device, body, at_ms in messages.prekeys(unit, aid) if at_ms >= oldest]

        found = await self._node.read(work)
        return r.Prekeys(bool(found), found, found[0] if found else msgspec.UNSET)

    def _fit_device(self, device: str, devices: set[str]) -> None:
        if device not in devices and len(devices) >= self._limits[r.DEVICES]:
            raise self._limits.refuse(r.DEVICES)


def _device(aid: str, spk: Spk) -> r.DeviceKey:
    return r.DeviceKey(
        aid=aid,
        device_id=spk.device,
        key_source=KEY_SOURCE,
        spk_id=spk.spk_id,
        spk_pk=spk.spk_pk,
        spk_signature=spk.signature,
        spk_timestamp=spk.made_s,
    )


def _prekey(device: str, body: bytes) -> dict[str, Any]:
    return {**decode(body, dict[str, Any]), "device_id": device}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams("not base64") from None
