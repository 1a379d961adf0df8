"""May they, and is it well formed? One table of operations for every wire."""
