"""Run `shootout.commands.fleet` as a board of tests does, deaf to this machine's noise (see `deaf`)."""

from __future__ import annotations

from shootout.commands.fleet import main
from support.deaf import deafen

if __name__ == "__main__":
    deafen({})
    main()
