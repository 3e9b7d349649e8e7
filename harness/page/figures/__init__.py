"""The figures of a page, a module each: a run → a chart, and a sentence on what it leaves out. Pure.

In: documents, decisions and journals. Out: Vega-Lite charts, which `charts` alone turns into SVG.
May use `report` and what is below it. Needs the extra `report`.
"""
