"""What a node runs in tests: `shootout.commands.on_node`, deaf to this machine's noise (see `deaf`)."""

from __future__ import annotations

from shootout.commands.on_node import main
from support.deaf import deafen
from support.forked_workers import fork_workers

if __name__ == "__main__":
    deafen({})
    fork_workers()
    main()
