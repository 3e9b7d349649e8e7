"""kill -9 at random instants, of a run and of its processes: nothing lost, measured twice or left behind."""
