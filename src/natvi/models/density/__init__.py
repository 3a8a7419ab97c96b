"""Any log-density of a pytree."""
