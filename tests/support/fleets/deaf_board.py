"""What a board runs in tests: `shootout.commands.fleet`, deaf to this machine's noise (see `deaf`)."""

from __future__ import annotations

from shootout.commands.fleet import main
from support.deaf import deafen

if __name__ == "__main__":
    deafen({})
    main()
