"""The harness's own instrument: calls of a known length."""
