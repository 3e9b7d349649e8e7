"""`make dist`: what is published, built from the tracked files alone, looked into, and tried where only the core is.

In: the files that git tracks. Out: a wheel and an sdist in `dist/`, or what is wrong with them. Uploads nothing.
"""
