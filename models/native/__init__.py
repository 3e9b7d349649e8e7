"""Models opened by the libraries that made them, for sources that convert them and for backends that run them."""
