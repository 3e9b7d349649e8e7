"""Runs as one page: the answer, three figures, tables and evidence; the same as Markdown.

In: documents and journals. Out: HTML, Markdown and SVG.
May use `report` and what is below it; never measures. `page` and the figures need the extra `report`; `charts` alone
turns a figure into SVG.
"""
