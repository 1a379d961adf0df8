"""Tests of the MQTT engines on real sockets."""
