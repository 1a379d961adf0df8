"""The verbs of `aun-edge`."""
