"""Round a model's layers one by one, and measure what each errs by: a library of apps, which no build goes through."""
