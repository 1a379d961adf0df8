"""Tests of the MQTT core, without sockets."""
