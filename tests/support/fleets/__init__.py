"""A fleet for tests: what machines say of themselves, and what they run."""
