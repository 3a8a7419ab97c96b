"""Deep models: nets with Gaussian weights, and deep GLMs with shrinkage of inputs."""

from natvi.result.registry import register, register_door

register("deep_glm", "natvi.models.deep.glm_fit")
register_door("bnn", "natvi.bnn(apply, params).load(path)")
