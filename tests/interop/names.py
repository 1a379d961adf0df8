"""The RPC names that the published AUN packages send, and those that their manuals name; `test_names` compares.

Grouped by what stands before the first dot (or the slash of a notification).
"""

from __future__ import annotations

NAMES: dict[str, dict[str, str]] = {
    "fastaun": {
        "auth": "aid_login1 aid_login2 connect create_aid refresh_token rekey renew_cert rotate_spk",
        "collab": (
            "clone commit create diff gc log ls-files ls-remote merge prune reflog remove_acl revert set_acl show "
            "tag.create tag.diff tag.list tag.prune tag.restore tag.rm tag.show unregister"
        ),
        "credential": "register revocationList revoke status",
        "debug": "diag",
        "group": (
            "accept_invite ack ack_events ack_messages add_member ban batch_review_join_request bind_aid "
            "bind_group_aid block check_membership commit_state complete_transfer create create_invite_code "
            "disband dissolve fs.check_upload fs.complete_upload fs.cp fs.create_download_ticket "
            "fs.create_upload_session fs.df fs.find fs.get_acl fs.list_acl fs.ls fs.lstat fs.mkdir fs.mount fs.mv "
            "fs.remove_acl fs.rm fs.set_acl fs.set_visibility fs.stat fs.touch fs.umount get_admins "
            "get_audit_status get_banlist get_blocklist get_info get_master get_member_statuses get_members "
            "get_online_members get_settings get_state get_summary history invite_member kick leave list "
            "list_devices list_invite_codes list_join_requests list_my list_my_invites pull pull_events read "
            "read_state recall refresh_member_types reject_invite remove_member renew_group_aid report_status "
            "request_join resume review_join_request revoke_invite revoke_invite_code search send set_role "
            "set_settings suspend thought.get thought.put transfer_owner unban unblock unregister_device update "
            "update_announcement update_member update_rules use_invite_code v2.ack v2.bootstrap v2.confirm_state "
            "v2.get_proposal v2.propose_state v2.pull v2.put_group_pk v2.send"
        ),
        "mail": "delete get get_attachment get_quota health list mark move search send status",
        "message": (
            "ack get_audit_status history peers pull query_online read read_state recall send status thought.get "
            "thought.put v2.ack v2.bootstrap v2.group_bootstrap v2.pull v2.put_peer_pk"
        ),
        "meta": "ping status trust_roots",
        "notification": "group.route route",
        "org": (
            "audit.query authz.check credential.delegate credential.getStatus credential.held credential.list "
            "credential.pendingSignatures credential.revocationList credential.surrender health host.add "
            "lifecycle.create lifecycle.dissolve lifecycle.get lifecycle.list lifecycle.resume lifecycle.suspend "
            "lifecycle.transfer lifecycle.transferAccept lifecycle.update member.add member.approveJoin "
            "member.ban member.freeze member.get member.invite member.inviteAccept member.inviteList "
            "member.inviteReject member.join member.joinRequests member.kick member.leave member.list "
            "member.offboard member.rejectJoin member.renewCredential member.roles member.setRole member.unban "
            "member.unfreeze resource.create status"
        ),
        "proxy": "list_services register_services unregister_services",
        "push": "ack register unregister",
        "storage": (
            "append_object atomic_repoint batch_delete batch_head_object check_access check_upload "
            "complete_upload copy_object create_download_ticket create_folder create_share_link create_symlink "
            "create_upload_session delete_folder delete_object delete_symlink fs.approve fs.copy fs.df fs.find "
            "fs.invalidate_membership fs.list fs.lstat fs.mkdir fs.mount fs.reject fs.remove fs.rename fs.stat "
            "fs.touch fs.unmount get_by_share get_folder get_limits get_object get_object_url get_quota "
            "head_object issue_token list_acl list_children list_objects list_prefixes list_share_links "
            "list_tokens move_folder move_object put_object readlink remove_acl rename_folder rename_object "
            "rename_symlink resolve_path revoke_share_link revoke_token set_acl set_object_meta set_visibility "
            "volume.create volume.expire_due volume.renew"
        ),
        "stream": "close create get_info list_active",
    },
    "aun-core": {
        "auth": "aid_login1 aid_login2 connect create_aid download_cert refresh_token rekey renew_cert request_cert",
        "group": (
            "ack ack_events ack_messages add_member ban batch_review_join_request create create_invite_code "
            "dissolve e2ee.abort_rotation e2ee.ack_rotation_key e2ee.begin_rotation e2ee.commit_rotation "
            "e2ee.get_epoch e2ee.heartbeat_rotation e2ee.rotate_epoch get get_admins get_announcement get_banlist "
            "get_join_requirements get_master get_members get_metrics get_online_members get_public_info "
            "get_rules get_stats get_summary kick leave list_devices list_invite_codes list_join_requests list_my "
            "pull pull_events refresh_member_types remove_member request_join resources.approve_request "
            "resources.delete resources.direct_add resources.get resources.get_access resources.list "
            "resources.list_pending resources.put resources.reject_request resources.request_add "
            "resources.resolve_access_ticket resources.update resume review_join_request revoke_invite_code "
            "search send set_role suspend transfer_owner unban unregister_device update update_announcement "
            "update_join_requirements update_rules use_invite_code"
        ),
        "message": "ack e2ee.get_prekey e2ee.put_prekey pull query_online recall send",
        "meta": "ping status trust_roots",
        "storage": (
            "complete_upload create_download_ticket create_upload_session delete_object get_object get_quota "
            "head_object list_objects list_prefixes put_object"
        ),
        "stream": "close create get_info list_active",
    },
}
"""SDK → namespace → the rest of each name."""


def names(sdk: str) -> set[str]:
    """The names of one SDK, whole."""
    slash = {"notification": "/"}
    return {f"{space}{slash.get(space, '.')}{rest}" for space, rests in NAMES[sdk].items() for rest in rests.split()}
