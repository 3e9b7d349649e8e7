"""Define the models that ship, one in each file, and what several of them share (`digits`, `vision`).

In: complete parameters. Out: a `Model` called MODEL in each module, which `models.sources.zoo` names.
"""
