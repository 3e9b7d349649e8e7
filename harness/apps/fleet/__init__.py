"""One study on other machines: a task is sent to each, and its run folder comes back.

A `transport.Transport` runs tasks: `ssh_hosts` on hosts that are reached by ssh, `ray_cluster` on the nodes of a Ray
cluster. Only the latter imports Ray.
"""
