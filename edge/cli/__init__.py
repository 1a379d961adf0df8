"""The verbs of `aun-edge`. Those that ask a node import the standard library and the contract only."""
