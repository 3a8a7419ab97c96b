"""Any log-density of a pytree."""

from natvi.result.registry import register

register("density", "natvi.models.density.storage")
