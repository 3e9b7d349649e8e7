"""Races without processes or clocks: lines made by hand, fakes of a stage, seeded worlds whose truth is known."""
