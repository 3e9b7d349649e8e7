"""`make bench`: what only a live machine can show. The figures in docs/measurement.md and results/reference are its output."""
