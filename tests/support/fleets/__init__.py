"""A fleet for tests: nodes, a cluster without Ray, and what a node runs."""
