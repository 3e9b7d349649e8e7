"""Document → an answer that a policy gives: which candidate meets every limit, and is best by its objective.

In: documents of runs of one model, and a `Policy` (`deploy.toml`). Out: a `Decision`.
May use `results` and what lies below it; pure, as `results` is: it measures nothing and imports no backend.
"""
