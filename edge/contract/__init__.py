"""The words every room of the house shares: records, errors, ports, limits and the one JSON reader.

Nothing here does I/O or reads a clock. `CORE.md` of the design is the dictionary.
"""
