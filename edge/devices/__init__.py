"""Conventions, registry, values, and the gate for what we do to the world."""
