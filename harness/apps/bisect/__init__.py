"""Find the release of a package that changed a model's time, its memory, or its outputs.

In: releases in order, and what races two or more of them. Out: the release, how sure that is, and a text for an issue.
"""
