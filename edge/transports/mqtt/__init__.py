"""MQTT listeners: sockets around the sans-I/O core of `edge.protocol.mqtt`."""
