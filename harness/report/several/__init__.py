"""Documents of several runs → text for people: a merged one, and what one run says of another.

In: what `compare` made. Out: lines and tables, as the rest of `report` makes them.
May use `report`, `compare` and what lies below them.
"""
