"""Define the models that ship, and what the image classifiers share (`vision`).

In: complete parameters. Out: a `Model` for each, in capitals, which `models.sources.zoo` names.
"""
