"""JAX: one adapter, `jax-jit`."""
