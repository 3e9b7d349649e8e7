"""How often a gate is red, green and undecided: simulated, and live on planted differences."""
