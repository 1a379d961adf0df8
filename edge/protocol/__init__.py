"""Pure state machines and codecs: no sockets, no clock, no database."""
