"""Define the models that ship, one in each file, and what several of them share (`digits`, `vision`).

In: complete parameters. Out: a `Model` called MODEL in each module, which the registry in `shootout.models` names.
May use `models.base`, `models.seeding` and the root.
"""
