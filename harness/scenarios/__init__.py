"""Call a model while it is timed: one call after the other, several at once, requests, training steps.

Plug-ins: they import core, and core finds them by name (`shootout.core.scenario`).
"""

TABLE = {
    "latency": "shootout.scenarios.latency:Latency",
    "throughput": "shootout.scenarios.throughput:Throughput",
    "train-step": "shootout.scenarios.train_step:TrainStep",
    "serve": "shootout.scenarios.serve:Serve",
    "sustained": "shootout.scenarios.sustained:Sustained",
    "varying": "shootout.scenarios.varying:VaryingSizes",
}
"""The scenarios that ship, each where its class is."""
