"""Show what only a live machine can show, with `make bench`. Its JSON is in results/reference, its figures in the
documents.
"""
