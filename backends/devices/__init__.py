"""The place of what each device other than the CPU tells by its driver, by the device's name in a target."""

from __future__ import annotations

TABLE = {"cuda": "shootout.backends.devices.cuda:Cuda"}
FACTS = ("shootout.backends.devices.cpu:facts", "shootout.backends.devices.cuda:facts")
"""The functions that tell what devices of each kind this machine has."""
CPU_MODEL = "shootout.backends.devices.cpu:cpu_model"
