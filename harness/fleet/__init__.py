"""One study on many machines: which nodes there are, what each measures, and what comes back.

In: a study, and the nodes: those of a cluster, or hosts that are reached by ssh. Out: run folders, one for each part of
the study that a node measured.
May use `journal` and what is below it; only `ray_cluster` imports Ray.
"""
