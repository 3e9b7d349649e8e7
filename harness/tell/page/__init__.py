"""Runs as one page: the answer, three figures, tables and evidence; the same as Markdown.

In: documents and journals. Out: HTML, Markdown and SVG. `page` and the figures need the extra `report`; `charts` alone
turns a figure into SVG.
"""
