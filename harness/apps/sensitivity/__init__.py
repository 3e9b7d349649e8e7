"""Measure the error that each layer causes if it is rounded alone, and show the worst first."""
