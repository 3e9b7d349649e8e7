"""Read what people bring as inputs, labels and truths."""
