"""Tell how each group of a run stands, from its journal alone, and what an app may read of a run (`Run`).

In: a run folder. Out: `Group`, `Run`. Pure: it works where no backend is installed.
"""
