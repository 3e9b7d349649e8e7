"""`make bench`: what only a live machine can show. Its JSON is in results/reference, its figures in the documents."""
