"""aun-edge: an embedded edge node that makes the things in a house reachable by agents."""

__version__ = "0.1.0"
