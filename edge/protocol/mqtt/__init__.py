"""MQTT 3.1.1 and 5 without a socket: codec, topics, sessions, routing. Bytes in, bytes and messages out."""
