"""Choose a runtime for each of several models that a function of the user's calls, and confirm the choice as a whole.

In: the function, its parts and its pages. `profile` tells what there is to gain, `choice` how each part is raced and
what it gets, `joint` races the whole program, `screen` tells the answer. `commands.parts` puts these together.
"""
