"""What is shown of which SDK, and where: a row a phrase, a column an SDK and a way that the node may end.

| | plain run | restart | `kill -9` | restore from a backup |
| --- | --- | --- | --- | --- |
| every phrase of `SCRIPTS` | `PLAIN`, tests of its own | `test_survival` | `test_survival` | `test_survival` |

`LEFT_OUT` are the cells that an SDK cannot have, each with the reason. `test_matrix` asks for every cell.
"""

from __future__ import annotations

PLAIN: dict[str, dict[str, tuple[str, ...]]] = {
    "fastaun": {
        "plain messages": ("test_fastaun.test_two_clients_ping_and_exchange_messages",),
        "encrypted messages": ("test_fastaun.test_encrypted_messages_reach_every_device_and_nobody_else",),
        "a device added later reads new mail": (
            "test_fastaun.test_encrypted_messages_reach_every_device_and_nobody_else",
            "test_fastaun_groups.test_a_second_device_reads_what_is_said_from_then_on",
        ),
        "offline catch-up": (
            "test_fastaun.test_a_client_that_comes_back_gets_what_it_missed",
            "test_fastaun_groups.test_who_was_away_catches_up_with_messages_and_events",
        ),
        "volatile messages": ("test_fastaun.test_history_recall_and_volatile_messages",),
        "history paging": (
            "test_fastaun.test_history_recall_and_volatile_messages",
            "test_fastaun_groups.test_the_history_of_a_group_pages_backwards",
        ),
        "recall": (
            "test_fastaun.test_history_recall_and_volatile_messages",
            "test_fastaun.test_a_recall_reaches_a_client_that_was_away",
            "test_fastaun_groups.test_a_recall_reaches_who_was_there_and_who_was_away",
        ),
        "groups with encryption: create, send, pull, kick, rejoin": (
            "test_fastaun_groups.test_plain_and_encrypted_messages_reach_every_member_and_nobody_else",
            "test_fastaun_groups.test_who_is_put_out_learns_it_hears_no_more_and_can_come_back",
        ),
        "certificate renew and rekey": ("test_identity.test_a_name_lives_by_the_sdk_until_it_is_revoked",),
    },
    "aun-core": {
        "plain messages": ("test_aun_core.test_two_clients_exchange_plain_and_encrypted_messages",),
        "encrypted messages": ("test_aun_core.test_two_clients_exchange_plain_and_encrypted_messages",),
        "a device added later reads new mail": ("test_aun_core.test_two_devices_each_get_an_encrypted_copy",),
        "offline catch-up": (
            "test_aun_core.test_a_client_that_comes_back_pulls_what_it_missed",
            "test_aun_core_groups.test_a_client_that_comes_back_gets_what_it_missed",
        ),
        "recall": ("test_aun_core.test_a_recall_reaches_the_recipient_and_leaves_a_tombstone",),
        "groups with encryption: create, send, pull, kick, rejoin": (
            "test_aun_core_groups.test_plain_and_encrypted_messages_reach_every_member",
            "test_aun_core_groups.test_who_is_put_out_hears_no_more_and_can_come_back",
        ),
    },
}
"""SDK → phrase → tests of the plain run."""

LEFT_OUT: dict[str, dict[str, str]] = {
    "fastaun": {},
    "aun-core": {
        "volatile messages": "0.2.10 knows no `ttl` and no volatile cursor; its manual has no such message.",
        "history paging": "0.2.10 has no message.history and no group.history; message.pull pages forward.",
        "certificate renew and rekey": (
            "its auth.renew_cert and auth.rekey pass on what the application gives them; the nonce of aid_login1 that "
            "must be signed is closed to applications (`method is internal_only`). It takes the certificate that a "
            "login past half of the old one's life brings."
        ),
    },
}


def left_out(phrase: str, sdk: str) -> str:
    """Why an SDK has no part in a phrase; "" when it has."""
    return LEFT_OUT[sdk].get(phrase, "")
