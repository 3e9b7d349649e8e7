"""Hold figures against limits: the answer of a run, a policy's decision, a gate, a comparison of runs."""
