"""Sections that simulate: seeded, without a time in them."""
