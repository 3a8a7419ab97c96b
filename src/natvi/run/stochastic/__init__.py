"""The noisy loop: fresh draws at every step, stages of step sizes, and a stop that noise does not fool."""
