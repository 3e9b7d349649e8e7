"""Tell what a run would do, before anything is made or measured."""
