from __future__ import annotations

from pathlib import Path

from edge.contract.time import Stamp
from edge.services.group import views
from edge.store.group_logs import ENCRYPTED, QUIET, V2, Said
from edge.store.keyring import Issued
from tests.support.groups import say, square


def test_the_chain_of_a_certificate_is_taken_apart() -> None:
    pems = [
        f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n" for name in ("issuer", "registry", "root")
    ]
    made = Issued(serial="1", aid="g", pem="own", cert_sha256="c", spki_sha256="s", curve="P-256", start=0, end=1)
    shown = views.certificate(made, "".join(pems))
    assert (shown["cert"], shown["ca_cert"], shown["ca_chain"]) == ("own", pems[0], pems[1:])
    assert (shown["cert_sn"], shown["agentid"], shown["curve"]) == ("1", "g", "P-256")


def test_the_flags_of_a_row_become_fields() -> None:
    row = Said(gid="g", seq=7, sender="a", message_id="m", flags=0, sent_ms=1, at=Stamp(1, 1), payload=b"{}")
    plain = views.delivery(row)
    assert (plain.encrypted, plain.render, plain.v2, bytes(plain.attachments)) == (False, True, False, b"[]")
    quiet = views.delivery(
        Said(
            gid="g",
            seq=7,
            sender="a",
            message_id="m",
            flags=ENCRYPTED | QUIET | V2,
            sent_ms=1,
            at=Stamp(1, 1),
            payload=b"{}",
        )
    )
    assert (quiet.encrypted, quiet.render, quiet.v2) == (True, False, True)


async def test_a_group_shows_the_heads_of_both_its_logs(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        shown = (await town.alice.call("group.get", group_id=gid))["group"]
        assert (shown["message_seq"], shown["event_seq"], shown["member_count"]) == (1, 2, 2)
