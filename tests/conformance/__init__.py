"""One suite that every adapter has to pass; docs/adding-a-backend.md says how to run it on a new one."""
