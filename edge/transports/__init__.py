"""Bytes in, bytes out. Nothing here decides what a peer could argue about."""
