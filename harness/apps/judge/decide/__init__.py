"""Document → an answer that a policy gives: which candidate meets every limit, and is best by its objective.

In: documents of runs of one model, and a `Policy` (`deploy.toml`). Out: a `Decision`. Pure: it measures nothing.
"""
