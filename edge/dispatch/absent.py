"""What AUN clients know to ask for and no operation here answers: the reason, told with the refusal (settled G34).

The published SDKs send these names. A namespace that comes leaves the table; a test compares it with the operations.
"""

from __future__ import annotations

ABSENT = {
    "auth.rotate_spk": "a new key of a device is put by message.v2.put_peer_pk",
    "collab": "this node has no shared documents (collab.*)",
    "credential": "this node issues no credentials of organisations (credential.*)",
    "group.commit_state": "the state of a group is changed by group.v2.propose_state and group.v2.confirm_state",
    "group.disband": "a group is ended by group.dissolve",
    "group.fs": "groups of this node keep no files (group.fs.*)",
    "group.get_audit_status": "nothing is audited here: a group has no recipients but its members",
    "group.resources": "groups of this node keep no resources (group.resources.*)",
    "mail": "this node has no mail service (mail.*); agents write to each other by message.send",
    "message.get_audit_status": "nothing is audited here: a message has no recipients but those it names",
    "message.status": "the answer of message.send tells the status; event/message.ack tells what was received",
    "message.v2.group_bootstrap": "the devices of a group's members are told by group.v2.bootstrap",
    "org": "this node has no organisations (org.*)",
    "storage": "this node keeps no objects (storage.*); a message may carry up to 1 MiB",
    "stream": "this node has no streams (stream.*)",
}
"""A name, or the beginning of names up to a dot → what to tell."""


def absent(surface: str, name: str) -> tuple[str, str]:
    """The entry of `ABSENT` that a name falls under, and its reason; "" and "" when there is none."""
    while name and surface == "aun":
        if name in ABSENT:
            return name, ABSENT[name]
        name = name.rpartition(".")[0]
    return "", ""
