"""Deep models: nets with Gaussian weights, and deep GLMs with shrinkage of inputs."""
