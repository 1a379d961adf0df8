"""The numbered statements of MQTT 3.1.1 (appendix B) and 5 (appendix B), and the tests that show those about a server.

A line is a number and `file: test` (`tests/protocol/mqtt/test_<file>.py`, or the file of `tests/transports/mqtt`; the
test's name without `test_`), several with `+`. Or why there is none:

- `client`: it says what a client has to do, and nothing a server could do otherwise;
- `never`: it says what has to go with something that our server never sends or does, so there is nothing to break;
- `choice`: it is about a server that does not support what ours does.
"""

REASONS = {
    "client": "obliges the client only",
    "never": "about what our server never sends or does",
    "choice": "about servers that lack what ours has",
}

V311 = """
1.5.3-1  codec: what_breaks_a_clause_is_named + connection: what_breaks_the_protocol_closes_and_changes_nothing
1.5.3-2  codec: what_breaks_a_clause_is_named + connection: what_breaks_the_protocol_closes_and_changes_nothing
1.5.3-3  codec: a_topic_in_an_acknowledged_frame_keeps_its_byte_order_mark
2.2.2-1  codec: every_packet_survives_the_way_to_bytes_and_back
2.2.2-2  codec: what_breaks_a_clause_is_named + connection: what_breaks_the_protocol_closes_and_changes_nothing
2.3.1-1  codec: what_breaks_a_clause_is_named
2.3.1-2  client
2.3.1-3  client
2.3.1-4  session: packet_ids_in_use_are_not_given_again + session: an_id_in_flight_is_skipped_on_the_short_way_too
2.3.1-5  codec: every_packet_survives_the_way_to_bytes_and_back
2.3.1-6  session: the_whole_exchange_of_qos_2 + clauses: acks_carry_the_packet_identifier_they_answer
2.3.1-7  clauses: acks_carry_the_packet_identifier_they_answer
3.1.0-1  admit: a_first_packet_that_is_not_connect_closes
    + connection: what_is_no_mqtt_at_all_is_closed_by_its_first_byte
3.1.0-2  admit: a_second_connect_closes
3.1.2-1  admit: another_protocol_name_is_closed_without_a_word
3.1.2-2  admit: another_protocol_level_is_refused_by_code_1
3.1.2-3  admit: 3_1_1_is_told_nothing_of_what_is_wrong_with_its_connect
3.1.2-4  admit: a_session_is_present_only_where_one_was_kept + builtin: a_durable_session_survives_a_restart
3.1.2-5  session: an_absent_client_finds_its_messages_in_order
3.1.2-6  admit: a_clean_session_ends_with_its_connection
3.1.2-7  clauses: a_retained_message_outlives_the_session_it_came_from
3.1.2-8  connection: a_lost_connection_publishes_the_will + connection: a_protocol_error_publishes_the_will
3.1.2-9  codec: what_breaks_a_clause_is_named
3.1.2-10  clauses: a_will_goes_out_once + connection: disconnect_throws_the_will_away
3.1.2-11  codec: what_breaks_a_clause_is_named
3.1.2-12  clauses: without_a_will_nothing_goes_out
3.1.2-13  codec: what_breaks_a_clause_is_named
3.1.2-14  codec: what_breaks_a_clause_is_named
3.1.2-15  codec: what_breaks_a_clause_is_named
3.1.2-16  clauses: a_will_goes_out_once
3.1.2-17  broker: a_will_is_retained_when_it_says_so
3.1.2-18  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.2-19  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.2-20  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.2-21  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.2-22  codec: what_breaks_a_clause_is_named
3.1.2-23  client
3.1.2-24  connection: a_client_silent_for_one_and_a_half_keep_alives_is_closed
    + builtin: the_keep_alive_is_watched_by_the_clock
3.1.3-1  codec: every_packet_survives_the_way_to_bytes_and_back
3.1.3-2  admit: a_session_is_present_only_where_one_was_kept
3.1.3-3  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.3-4  clauses: strings_of_a_connect_are_well_formed
3.1.3-5  clauses: client_ids_of_the_smallest_alphabet_are_taken
3.1.3-6  clauses: clients_without_an_id_are_sessions_of_their_own
3.1.3-7  client
3.1.3-8  admit: an_empty_client_id_needs_a_clean_session
3.1.3-9  admit: a_client_id_over_the_limit_is_refused
3.1.3-10  clauses: strings_of_a_connect_are_well_formed
3.1.3-11  clauses: strings_of_a_connect_are_well_formed
3.1.4-1  admit: 3_1_1_is_told_nothing_of_what_is_wrong_with_its_connect
3.1.4-2  admit: the_same_client_id_takes_the_connection_over
3.1.4-3  admit: a_clean_session_ends_with_its_connection
3.1.4-4  admit: a_known_user_is_let_in
3.1.4-5  clauses: what_follows_a_refused_connect_is_not_looked_at
3.2.0-1  admit: packets_behind_the_connect_wait_for_the_connack
3.2.2-1  admit: a_session_is_present_only_where_one_was_kept
3.2.2-2  admit: a_session_is_present_only_where_one_was_kept
3.2.2-3  admit: a_session_is_present_only_where_one_was_kept
3.2.2-4  admit: a_stranger_is_told_and_closed
3.2.2-5  admit: a_stranger_is_told_and_closed
3.2.2-6  clauses: a_refusal_that_3_1_1_has_no_code_for_closes_in_silence
3.3.1-1  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
3.3.1-2  codec: what_breaks_a_clause_is_named + clauses: what_is_sent_first_has_no_dup_whatever_came_in
3.3.1-3  clauses: what_is_sent_first_has_no_dup_whatever_came_in
3.3.1-4  connection: what_breaks_the_protocol_closes_and_changes_nothing
3.3.1-5  broker: a_new_subscriber_gets_the_last_retained_message
3.3.1-6  subscribing: retained_messages_come_with_the_flag_and_the_smaller_qos
3.3.1-7  clauses: a_retained_message_of_qos_0_takes_the_place_of_the_last
3.3.1-8  subscribing: retained_messages_come_with_the_flag_and_the_smaller_qos
3.3.1-9  connection: a_retained_flag_is_0_on_live_delivery
3.3.1-10  broker: an_empty_retained_message_forgets_and_is_forwarded
3.3.1-11  broker: an_empty_retained_message_forgets_and_is_forwarded
3.3.1-12  broker: what_is_not_retained_changes_nothing_of_what_is
3.3.2-1  codec: what_breaks_a_clause_is_named
3.3.2-2  connection: what_breaks_the_protocol_closes_and_changes_nothing
3.3.2-3  topics: the_filter_tree_finds_what_the_model_finds
3.3.4-1  clauses: acks_carry_the_packet_identifier_they_answer
3.3.5-1  subscribing: overlapping_subscriptions_give_one_copy_with_the_highest_qos
3.3.5-2  connection: a_device_publishes_inside_its_own_topics_only
3.6.1-1  connection: what_breaks_the_protocol_closes_and_changes_nothing
3.8.1-1  connection: what_breaks_the_protocol_closes_and_changes_nothing
3.8.3-1  clauses: strings_of_a_subscription_are_well_formed
3.8.3-2  choice
3.8.3-3  connection: what_breaks_the_protocol_closes_and_changes_nothing
3.8.3-4  connection: what_breaks_the_protocol_closes_and_changes_nothing
3.8.4-1  subscribing: every_filter_has_its_answer_in_order
3.8.4-2  clauses: acks_carry_the_packet_identifier_they_answer
3.8.4-3  subscribing: a_second_subscription_to_a_filter_replaces_the_first
    + subscribing: subscribing_again_brings_the_retained_messages_again
3.8.4-4  subscribing: every_filter_has_its_answer_in_order
3.8.4-5  subscribing: every_filter_has_its_answer_in_order
3.8.4-6  connection: a_message_reaches_a_subscriber_with_the_qos_of_both
3.9.3-1  subscribing: every_filter_has_its_answer_in_order
3.9.3-2  subscribing: a_withheld_filter_is_refused_by_its_code
3.10.1-1  codec: what_breaks_a_clause_is_named
3.10.3-1  clauses: strings_of_a_subscription_are_well_formed
3.10.3-2  codec: what_breaks_a_clause_is_named
3.10.4-1  clauses: a_filter_ends_by_its_very_characters
3.10.4-2  subscribing: an_ended_subscription_brings_nothing_more
3.10.4-3  clauses: what_was_under_way_when_its_subscription_ended_is_completed
3.10.4-4  clauses: acks_carry_the_packet_identifier_they_answer
3.10.4-5  subscribing: an_ended_subscription_brings_nothing_more
3.10.4-6  clauses: several_filters_end_with_one_answer
3.12.4-1  connection: ping_is_answered
3.14.1-1  codec: what_breaks_a_clause_is_named
3.14.4-1  client
3.14.4-2  client
3.14.4-3  connection: disconnect_throws_the_will_away
4.1.0-1  session: an_absent_client_finds_its_messages_in_order
4.1.0-2  admit: a_clean_session_ends_with_its_connection
4.3.1-1  clauses: what_is_sent_first_has_no_dup_whatever_came_in
4.3.2-1  session: packet_ids_in_use_are_not_given_again + clauses: what_is_sent_first_has_no_dup_whatever_came_in
4.3.2-2  clauses: a_packet_identifier_is_new_again_once_its_exchange_is_over
4.3.3-1  session: the_whole_exchange_of_qos_2 + connection: puback_after_pubrec_closes
4.3.3-2  session: a_repeated_publish_of_qos_2_is_heard_once
    + clauses: a_packet_identifier_is_new_again_once_its_exchange_is_over
4.4.0-1  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.5.0-1  delivery: a_message_for_an_absent_client_is_kept_before_its_publisher_hears_of_it
4.5.0-2  client
4.6.0-1  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.6.0-2  ackline: acks_leave_in_order_although_commits_do_not
4.6.0-3  clauses: pubrecs_leave_in_order_although_commits_do_not
4.6.0-4  clauses: pubrels_leave_in_the_order_of_their_pubrecs
4.6.0-5  clauses: messages_of_a_topic_and_a_qos_come_in_the_order_in_which_they_were_sent
4.6.0-6  clauses: messages_of_a_topic_and_a_qos_come_in_the_order_in_which_they_were_sent
4.7.1-1  topics: topic_names_that_are_not
4.7.1-2  topics: filters_that_are_not
4.7.1-3  topics: filters_that_are_not + topics: filters_that_are_valid
4.7.2-1  subscribing: wildcards_at_the_top_do_not_match_dollar_topics
4.7.3-1  topics: topic_names_that_are_not + topics: filters_that_are_not
4.7.3-2  topics: topic_names_that_are_not + topics: filters_that_are_not
4.7.3-3  topics: topic_names_that_are_not + fields: a_string_has_65535_bytes_at_most
4.7.3-4  clauses: names_are_compared_as_they_are
4.8.0-1  connection: what_breaks_the_protocol_closes_and_changes_nothing
    + connection: an_ack_of_another_kind_than_awaited_closes
4.8.0-2  ackline: with_an_ack_held_too_long_the_connection_closes
6.0.0-1  ws: text_is_refused
6.0.0-2  ws: a_client_publishes_and_reads
6.0.0-3  ws: without_the_subprotocol_nobody_comes_in
6.0.0-4  ws: a_client_publishes_and_reads
7.0.0-1  never
7.0.0-2  builtin: mosquittos_clients_pass_messages_of_every_qos
7.1.1-1  builtin: mosquittos_clients_pass_messages_of_every_qos
7.1.2-1  client
"""

V5 = """
1.5.4-1  codec: what_breaks_a_clause_is_named
1.5.4-2  codec: what_breaks_a_clause_is_named
1.5.4-3  codec: a_topic_in_an_acknowledged_frame_keeps_its_byte_order_mark
1.5.5-1  fields: a_variable_byte_integer_survives + codec: what_breaks_a_clause_is_named
1.5.7-1  clauses: strings_of_user_properties_are_well_formed
2.1.3-1  codec: what_breaks_a_clause_is_named
2.2.1-2  codec: every_packet_survives_the_way_to_bytes_and_back
2.2.1-3  client
2.2.1-4  session: packet_ids_in_use_are_not_given_again
2.2.1-5  session: the_whole_exchange_of_qos_2 + clauses: acks_carry_the_packet_identifier_they_answer
2.2.1-6  clauses: acks_carry_the_packet_identifier_they_answer
2.2.2-1  connection: a_frame_of_version_5_needs_its_properties
3.1.0-1  admit: a_first_packet_that_is_not_connect_closes
3.1.0-2  admit: a_second_connect_closes
3.1.2-1  admit: another_protocol_name_is_closed_without_a_word
3.1.2-2  admit: a_level_above_5_in_the_grammar_of_5_is_refused_as_5_does
3.1.2-3  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-4  clauses: clean_start_discards_what_there_was
3.1.2-5  session: an_absent_client_finds_its_messages_in_order
3.1.2-6  clauses: clean_start_discards_what_there_was
3.1.2-7  connection: a_lost_connection_publishes_the_will
3.1.2-8  connection: a_lost_connection_publishes_the_will + broker: a_will_waits_for_its_delay
3.1.2-9  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-10  clauses: a_will_goes_out_once + connection: disconnect_throws_the_will_away
3.1.2-11  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-12  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-13  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-14  clauses: a_will_goes_out_once
3.1.2-15  broker: a_will_is_retained_when_it_says_so
3.1.2-16  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-17  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-18  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.2-19  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.2-20  client
3.1.2-21  client
3.1.2-22  connection: a_client_silent_for_one_and_a_half_keep_alives_is_closed
3.1.2-23  admit: version_5_keeps_a_session_for_its_expiry_interval
3.1.2-24  session: a_message_too_large_for_the_client_is_not_sent
    + admit: a_refusal_is_no_larger_than_the_client_takes
    + subscribing: a_request_whose_answer_is_larger_than_the_client_takes_closes
3.1.2-25  session: a_message_too_large_for_the_client_is_not_sent
3.1.2-26  session: topics_are_sent_once_to_a_client_that_takes_aliases
3.1.2-27  clauses: a_client_that_takes_no_aliases_gets_none
3.1.2-28  clauses: a_connack_says_nothing_that_was_not_asked_for
3.1.2-29  clauses: acks_have_no_reason_string_and_no_user_properties
3.1.2-30  client
3.1.3-1  codec: every_packet_survives_the_way_to_bytes_and_back
3.1.3-2  admit: a_session_is_present_only_where_one_was_kept
3.1.3-3  clauses: a_connect_has_the_fields_that_its_flags_announce
3.1.3-4  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.3-5  clauses: client_ids_of_the_smallest_alphabet_are_taken
3.1.3-6  clauses: clients_without_an_id_are_sessions_of_their_own
3.1.3-7  admit: version_5_is_told_the_client_id_it_was_given
3.1.3-8  admit: a_client_id_over_the_limit_is_refused
3.1.3-9  broker: a_client_that_is_back_in_time_leaves_no_will
3.1.3-10  clauses: user_properties_keep_their_order
3.1.3-11  clauses: strings_of_a_connect_are_well_formed
3.1.3-12  clauses: strings_of_a_connect_are_well_formed
3.1.4-1  admit: version_5_is_told_what_is_wrong_with_its_connect
3.1.4-2  admit: a_stranger_with_version_5_is_told_why
3.1.4-3  admit: version_5_hears_that_it_was_taken_over
3.1.4-4  clauses: clean_start_discards_what_there_was
3.1.4-5  admit: a_known_user_is_let_in
3.1.4-6  clauses: what_follows_a_refused_connect_is_not_looked_at
3.2.0-1  admit: packets_behind_the_connect_wait_for_the_connack
3.2.0-2  admit: a_second_connect_closes
3.2.2-1  codec: every_packet_survives_the_way_to_bytes_and_back
3.2.2-2  clauses: clean_start_discards_what_there_was
3.2.2-3  admit: version_5_keeps_a_session_for_its_expiry_interval
3.2.2-4  client
3.2.2-5  client
3.2.2-6  admit: a_stranger_with_version_5_is_told_why
3.2.2-7  admit: a_stranger_with_version_5_is_told_why
3.2.2-8  clauses: every_refusal_of_a_connect_has_a_code_that_a_connack_may_carry
3.2.2-9  choice
3.2.2-10  choice
3.2.2-11  client
3.2.2-12  choice
3.2.2-13  choice
3.2.2-14  client
3.2.2-15  connection: a_packet_over_the_limit_closes_by_its_header
3.2.2-16  admit: version_5_is_told_the_client_id_it_was_given + clauses: clients_without_an_id_are_sessions_of_their_own
3.2.2-17  connection: a_topic_alias_over_the_maximum_closes
3.2.2-18  connection: a_topic_alias_over_the_maximum_closes
3.2.2-19  never
3.2.2-20  never
3.2.2-21  client
3.2.2-22  connection: a_client_silent_for_one_and_a_half_keep_alives_is_closed
3.3.1-1  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
3.3.1-2  codec: what_breaks_a_clause_is_named
3.3.1-3  clauses: what_is_sent_first_has_no_dup_whatever_came_in
3.3.1-4  connection: version_5_is_told_what_it_broke
3.3.1-5  broker: a_new_subscriber_gets_the_last_retained_message
    + clauses: a_retained_message_of_qos_0_takes_the_place_of_the_last
3.3.1-6  broker: an_empty_retained_message_forgets_and_is_forwarded
3.3.1-7  broker: an_empty_retained_message_forgets_and_is_forwarded
3.3.1-8  broker: what_is_not_retained_changes_nothing_of_what_is
3.3.1-9  subscribing: retain_handling_says_when_retained_messages_come
3.3.1-10  subscribing: retain_handling_says_when_retained_messages_come
3.3.1-11  subscribing: retain_handling_says_when_retained_messages_come
3.3.1-12  subscribing: retain_as_published_keeps_the_flag + connection: a_retained_flag_is_0_on_live_delivery
3.3.1-13  subscribing: retain_as_published_keeps_the_flag
3.3.2-1  codec: what_breaks_a_clause_is_named
3.3.2-2  codec: what_breaks_a_clause_is_named
3.3.2-3  topics: the_filter_tree_finds_what_the_model_finds
3.3.2-4  connection: properties_that_are_the_receivers_business_are_passed_on
3.3.2-5  session: messages_expire_while_they_wait
3.3.2-6  session: messages_expire_while_they_wait
3.3.2-7  connection: an_alias_does_not_outlive_its_connection
3.3.2-8  connection: a_topic_alias_over_the_maximum_closes
3.3.2-9  connection: a_topic_alias_over_the_maximum_closes
3.3.2-10  client
3.3.2-11  session: topics_are_sent_once_to_a_client_that_takes_aliases
3.3.2-12  connection: a_topic_alias_over_the_maximum_closes
3.3.2-13  clauses: strings_of_user_properties_are_well_formed
3.3.2-14  codec: what_breaks_a_clause_is_named
3.3.2-15  connection: properties_that_are_the_receivers_business_are_passed_on
3.3.2-16  connection: properties_that_are_the_receivers_business_are_passed_on
3.3.2-17  connection: properties_that_are_the_receivers_business_are_passed_on
3.3.2-18  clauses: user_properties_keep_their_order
3.3.2-19  clauses: strings_of_user_properties_are_well_formed
3.3.2-20  connection: properties_that_are_the_receivers_business_are_passed_on
3.3.4-1  clauses: acks_carry_the_packet_identifier_they_answer
3.3.4-2  subscribing: overlapping_subscriptions_give_one_copy_with_the_highest_qos
3.3.4-3  subscribing: one_copy_carries_every_identifier
3.3.4-4  subscribing: one_copy_carries_every_identifier
3.3.4-5  never
3.3.4-6  connection: a_clients_subscription_identifier_in_publish_is_a_protocol_error
3.3.4-7  connection: more_unacknowledged_than_receive_maximum_closes
    + connection: each_connection_may_send_as_many_as_receive_maximum_says
3.3.4-8  client
3.3.4-9  session: a_version_5_clients_receive_maximum_is_kept
    + session: a_smaller_receive_maximum_after_reconnect_is_kept_too
3.3.4-10  sender: pubrel_waits_for_no_window_after_a_reconnect
3.4.2-1  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.4.2-2  never
3.4.2-3  never
3.5.2-1  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.5.2-2  never
3.5.2-3  never
3.6.1-1  codec: what_breaks_a_clause_is_named
3.6.2-1  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.6.2-2  never
3.6.2-3  never
3.7.2-1  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.7.2-2  never
3.7.2-3  never
3.8.1-1  codec: what_breaks_a_clause_is_named
3.8.3-1  clauses: strings_of_a_subscription_are_well_formed
3.8.3-2  codec: what_breaks_a_clause_is_named
3.8.3-3  subscribing: no_local_keeps_a_clients_own_messages_from_it
3.8.3-4  codec: what_breaks_a_clause_is_named
3.8.3-5  codec: what_breaks_a_clause_is_named
3.8.4-1  subscribing: every_filter_has_its_answer_in_order
3.8.4-2  clauses: acks_carry_the_packet_identifier_they_answer
3.8.4-3  subscribing: a_second_subscription_to_a_filter_replaces_the_first
3.8.4-4  subscribing: retain_handling_says_when_retained_messages_come
    + clauses: a_subscription_is_replaced_without_losing_a_message
3.8.4-5  subscribing: every_filter_has_its_answer_in_order
3.8.4-6  subscribing: every_filter_has_its_answer_in_order
3.8.4-7  subscribing: every_filter_has_its_answer_in_order
    + subscribing: a_filter_that_reaches_out_of_the_allowed_is_refused_whole
3.8.4-8  connection: a_message_reaches_a_subscriber_with_the_qos_of_both
3.9.2-1  never
3.9.2-2  never
3.9.3-1  subscribing: every_filter_has_its_answer_in_order
3.9.3-2  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.10.1-1  codec: what_breaks_a_clause_is_named
3.10.3-1  clauses: strings_of_a_subscription_are_well_formed
3.10.3-2  codec: what_breaks_a_clause_is_named
3.10.4-1  clauses: a_filter_ends_by_its_very_characters
3.10.4-2  subscribing: an_ended_subscription_brings_nothing_more
3.10.4-3  clauses: what_was_under_way_when_its_subscription_ended_is_completed
3.10.4-4  clauses: acks_carry_the_packet_identifier_they_answer
3.10.4-5  subscribing: an_ended_subscription_brings_nothing_more
3.10.4-6  clauses: several_filters_end_with_one_answer
3.11.2-1  never
3.11.2-2  never
3.11.3-1  clauses: several_filters_end_with_one_answer
3.11.3-2  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.12.4-1  connection: ping_is_answered
3.14.0-1  clauses: before_its_connack_nobody_hears_a_disconnect
3.14.1-1  codec: what_breaks_a_clause_is_named
3.14.2-1  clauses: every_reason_that_we_give_is_one_that_its_packet_may_carry
3.14.2-2  never
3.14.2-3  connection: a_reason_too_long_for_the_client_is_left_out
3.14.2-4  never
3.14.4-1  clauses: after_disconnect_nothing_more_is_sent
3.14.4-2  connection: version_5_is_told_what_it_broke
3.14.4-3  connection: disconnect_throws_the_will_away
3.15.1-1  clauses: auth_with_flags_is_malformed
3.15.2-1  never
3.15.2-2  never
3.15.2-3  never
4.1.0-1  admit: version_5_without_an_expiry_keeps_nothing
4.1.0-2  admit: version_5_keeps_a_session_for_its_expiry_interval
4.2-1  builtin: mosquittos_clients_pass_messages_of_every_qos
4.3.1-1  clauses: what_is_sent_first_has_no_dup_whatever_came_in
4.3.2-1  session: packet_ids_in_use_are_not_given_again
4.3.2-2  clauses: what_is_sent_first_has_no_dup_whatever_came_in
4.3.2-3  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.3.2-4  clauses: acks_carry_the_packet_identifier_they_answer
4.3.2-5  clauses: a_packet_identifier_is_new_again_once_its_exchange_is_over
4.3.3-1  session: packet_ids_in_use_are_not_given_again
4.3.3-2  clauses: what_is_sent_first_has_no_dup_whatever_came_in
4.3.3-3  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.3.3-4  session: the_whole_exchange_of_qos_2
4.3.3-5  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.3.3-6  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.3.3-7  clauses: what_was_sent_once_does_not_expire
4.3.3-8  clauses: acks_carry_the_packet_identifier_they_answer
4.3.3-9  clauses: a_packet_identifier_is_new_again_once_its_exchange_is_over
4.3.3-10  session: a_repeated_publish_of_qos_2_is_heard_once
4.3.3-11  clauses: acks_carry_the_packet_identifier_they_answer
4.3.3-12  clauses: a_packet_identifier_is_new_again_once_its_exchange_is_over
4.3.3-13  clauses: an_exchange_goes_on_although_its_message_has_expired
4.4.0-1  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
    + session: nothing_is_sent_again_while_the_client_stays
4.4.0-2  session: a_refusing_puback_settles_too + session: a_refusing_pubrec_ends_the_exchange
4.5.0-1  delivery: a_message_for_an_absent_client_is_kept_before_its_publisher_hears_of_it
4.5.0-2  client
4.6.0-1  session: what_was_not_acknowledged_is_sent_again_with_its_id_and_dup
4.6.0-2  client
4.6.0-3  client
4.6.0-4  client
4.6.0-5  clauses: messages_of_a_topic_and_a_qos_come_in_the_order_in_which_they_were_sent
4.6.0-6  clauses: messages_of_a_topic_and_a_qos_come_in_the_order_in_which_they_were_sent
4.7.0-1  topics: topic_names_that_are_not
4.7.1-1  topics: filters_that_are_not
4.7.1-2  topics: filters_that_are_not
4.7.2-1  subscribing: wildcards_at_the_top_do_not_match_dollar_topics
4.7.3-1  topics: topic_names_that_are_not
4.7.3-2  topics: topic_names_that_are_not
4.7.3-3  topics: topic_names_that_are_not
4.7.3-4  clauses: names_are_compared_as_they_are
4.8.2-1  topics: shares_have_a_group_and_a_filter + subscribing: a_share_that_is_none_is_refused_alone
4.8.2-2  topics: shares_have_a_group_and_a_filter + subscribing: a_share_that_is_none_is_refused_alone
4.8.2-3  clauses: each_member_of_a_group_has_its_own_qos
4.8.2-4  clauses: a_message_of_qos_2_that_a_member_was_sent_stays_that_members
4.8.2-5  clauses: a_message_of_qos_2_that_a_member_was_sent_stays_that_members
4.8.2-6  clauses: what_a_member_refuses_goes_to_no_other
4.9.0-1  session: a_version_5_clients_receive_maximum_is_kept
4.9.0-2  session: a_version_5_clients_receive_maximum_is_kept
4.9.0-3  clauses: a_full_window_stops_messages_only
4.12.0-1  admit: enhanced_authentication_is_refused_by_its_code
4.12.0-2  never
4.12.0-3  client
4.12.0-4  admit: enhanced_authentication_is_refused_by_its_code
4.12.0-5  never
4.12.0-6  clauses: a_connack_says_nothing_that_was_not_asked_for
4.12.0-7  admit: auth_later_is_a_protocol_error
4.12.1-1  admit: auth_later_is_a_protocol_error
4.12.1-2  never
4.13.1-1  connection: version_5_is_told_what_it_broke + connection: an_ack_of_another_kind_than_awaited_closes
4.13.2-1  admit: a_stranger_with_version_5_is_told_why + connection: version_5_is_told_what_it_broke
6.0.0-1  ws: text_is_refused
6.0.0-2  ws: a_client_publishes_and_reads
6.0.0-3  ws: without_the_subprotocol_nobody_comes_in
6.0.0-4  ws: a_client_publishes_and_reads
"""


def rows(table: str) -> dict[str, list[str]]:
    """By number: the tests as `file: test`, or the one word that says why there is none."""
    found: dict[str, list[str]] = {}
    for line in table.strip().replace("\n    + ", " + ").splitlines():
        number, told = line.split("  ", 1)
        if number in found:
            raise ValueError(f"{number} twice")
        found[number] = told.split(" + ")
    return found
