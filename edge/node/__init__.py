"""Composition root: builds the house, hands down the ports, owns the one TaskGroup and the order of leaving."""

from edge.node.program import main_init, main_run

__all__ = ["main_init", "main_run"]
