"""Faults made on purpose: power cuts from a trace of system calls, kills under load."""
