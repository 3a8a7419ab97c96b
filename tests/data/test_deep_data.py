"""Loaders of the data that deep models are fitted to: sizes as published, values in their range."""

import numpy as np
import pytest

from natvi import data

pytestmark = pytest.mark.needs_data


@pytest.mark.parametrize(
    ("load", "rows", "shape"),
    [
        (data.load_mnist, 60_000, (28, 28, 1)),
        (data.load_fashion_mnist, 60_000, (28, 28, 1)),
        pytest.param(data.load_cifar10, 50_000, (32, 32, 3), marks=pytest.mark.slow),
    ],
    ids=["mnist", "fashion", "cifar10"],
)
def test_images(load, rows, shape):
    for images, number in zip(load(), (rows, 10_000), strict=True):
        assert isinstance(images, data.Images)
        assert images.X.shape == (number, *shape) and images.X.dtype == np.uint8 and images.y.shape == (number,)
        counts = np.bincount(images.y)
        assert len(counts) == 10 and counts.min() > 0.08 * number
        assert images.X.max() == 255 and 20 < images.X.mean() < 150


def test_tables():
    fit, test = data.load_a9a()
    assert fit.X.shape == (32_561, 124) and test.X.shape == (16_281, 124)
    assert 0.2 < fit.y.mean() < 0.3
    protein = data.load_protein()
    assert protein.shape == (45_730, 10) and np.isfinite(protein.to_numpy()).all()
