"""What a whole default run asks of the system: a trace (strace) → its sockets, and the files that it wrote."""
