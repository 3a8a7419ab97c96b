"""The paper's nets in plain JAX: multilayer perceptrons and LeNet-5, each a pytree of parameters and a function.

Convolutions are matrix products over patches with the batch as the last axis: inside compiled loops on processors they
are several times as fast as XLA's own.
"""

import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

KERNEL, CHANNELS, HIDDEN = 5, (6, 16), (120, 84)


def xavier(key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Float[Array, "..."]:
    """Draw weights uniformly with variance 2 / (fan_in + fan_out)."""
    bound = math.sqrt(6.0 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def init_mlp(key: PRNGKeyArray, sizes: tuple[int, ...]) -> list[dict[str, Array]]:
    """Return Xavier weights and zero biases of a perceptron, from inputs to outputs.

    Example:
        >>> [layer["w"].shape for layer in init_mlp(jax.random.key(0), (9, 20, 1))]
        [(9, 20), (20, 1)]
    """
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": xavier(k, (a, b), a, b), "b": jnp.zeros(b, jnp.float32)}
        for k, (a, b) in zip(keys, pairwise(sizes), strict=True)
    ]


def mlp(params: list[dict[str, Any]], X: Float[Array, "n p"]) -> Float[Array, "n k"]:
    """Return the outputs: ReLU after every layer but the last."""
    for layer in params[:-1]:
        X = jax.nn.relu(X @ layer["w"] + layer["b"])
    return X @ params[-1]["w"] + params[-1]["b"]


def init_lenet5(key: PRNGKeyArray, side: int, channels: int, classes: int = 10) -> dict[str, Any]:
    """Return Xavier weights and zero biases of LeNet-5.

    Args:
        key: Randomness.
        side: Pixels along a side of an image, a multiple of 4.
        channels: Colours.
        classes: Outputs.

    Example:
        >>> params = init_lenet5(jax.random.key(0), 28, 1)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        61706

    Paper: Section 8.3; d = 61,706 and 83,126 need the first convolution padded by 2.
    """
    if side % 4 or side < 12:
        raise ValueError(f"LeNet-5 pools twice: a side must be a multiple of 4, at least 12; got {side}.")
    keys = jax.random.split(key, 3)
    convolutions, last = [], channels
    for k, out in zip(keys[:2], CHANNELS, strict=True):
        area = KERNEL * KERNEL
        convolutions.append(
            {"w": xavier(k, (KERNEL, KERNEL, last, out), area * last, area * out), "b": jnp.zeros(out, jnp.float32)}
        )
        last = out
    features = last * ((side // 2 - KERNEL + 1) // 2) ** 2
    return {"convolutions": convolutions, "dense": init_mlp(keys[2], (features, *HIDDEN, classes))}


def lenet5(params: dict[str, Any], images: Array) -> Float[Array, "n classes"]:
    """Return the outputs of LeNet-5 with ReLU and max-pooling; images are `(n, side, side, channels)`.

    Whole numbers from 0 to 255 are taken for pixels and divided by 255.
    """
    return mlp(params["dense"][-1:], lenet5_features(params, images))


def lenet5_features(params: dict[str, Any], images: Array) -> Float[Array, "n h"]:
    """Return the activations of the last hidden layer."""
    x = images / 255.0 if jnp.issubdtype(images.dtype, jnp.integer) else images
    x = jnp.transpose(x.astype(jnp.float32), (3, 1, 2, 0))
    first, second = params["convolutions"]
    x = pool(jax.nn.relu(convolve(x, first, padding=2)))
    x = pool(jax.nn.relu(convolve(x, second, padding=0)))
    x = x.reshape(-1, x.shape[-1]).T
    for layer in params["dense"][:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x


def convolve(x: Float[Array, "c h w n"], layer: dict[str, Any], padding: int) -> Float[Array, "k h2 w2 n"]:
    """Return the convolution as one matrix product over patches.

    Patches are laid out by columns first, then by rows: ten large pieces to put together, and to add up on the way
    back, where all shifts at once would be twenty-five small ones.
    """
    kernel = layer["w"]
    rows, columns, inputs, outputs = kernel.shape
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = x.shape[1] - rows + 1, x.shape[2] - columns + 1
    strips = jnp.concatenate([x[:, :, j : j + width] for j in range(columns)])
    patches = jnp.concatenate([strips[:, i : i + height] for i in range(rows)])
    out = kernel.reshape(-1, outputs).T @ patches.reshape(rows * columns * inputs, -1) + layer["b"][:, None]
    return out.reshape(outputs, height, width, -1)


def pool(x: Float[Array, "c h w n"]) -> Float[Array, "c h2 w2 n"]:
    """Return the maximum over squares of two by two."""
    c, h, w, n = x.shape
    x = x.reshape(c, h // 2, 2, w // 2, 2, n)
    upper, lower = (jnp.maximum(x[:, :, i, :, 0], x[:, :, i, :, 1]) for i in (0, 1))
    return jnp.maximum(upper, lower)
