"""Choose the arms that play, restart by restart, until every question has its answer or the time is up.

In: built arms. Out: journal lines.
"""
