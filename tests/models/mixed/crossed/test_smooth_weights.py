"""Weights of points tilted to a smooth density: moments without the noise of the points."""

import numpy as np

from natvi.models.mixed.crossed.integrated.smooth import smooth
from natvi.models.mixed.marginal.proposal import Proposal, draw_mixture

MIDDLE, WIDTH = np.array([0.2, 0.5]), np.array([0.3, 0.4])  # of normal densities of two sds, which may be zero


def log_density(hyper: np.ndarray) -> np.ndarray:
    sd = np.exp(-hyper)
    return np.sum(-0.5 * ((sd - MIDDLE) / WIDTH) ** 2 - hyper, axis=1)


def exact() -> tuple[np.ndarray, np.ndarray]:
    s = np.arange(0.0, 4.0, 5e-4)[:, None] + 2.5e-4
    p = np.exp(-0.5 * ((s - MIDDLE) / WIDTH) ** 2)
    p /= p.sum(axis=0)
    mean = np.sum(p * s, axis=0)
    return mean, np.sqrt(np.sum(p * (s - mean) ** 2, axis=0))


def weighted(seed: int, size: int = 256) -> tuple:
    main = Proposal(np.array([1.0, 0.7]), np.diag([0.5, 0.5]), np.array([[0.9, 0.8], [2.8, 2.6]]), 8.0)
    wide = Proposal(np.array([3.0, 3.0]), np.eye(2), np.array([[1.5, 1.5], [1.5, 1.5]]), 8.0)
    parts = [(0.7, main), (0.3, wide)]
    points, log_q = draw_mixture(parts, size, seed)
    log_p = log_density(points)
    w = np.exp(log_p - log_q - np.max(log_p - log_q))
    return points, log_p, w / w.sum(), parts


def test_means_and_sds_are_those_of_the_density_itself():
    mean, sd = exact()
    raw, tilted = [], []
    for seed in range(6):
        points, log_p, w, parts = weighted(seed)
        noisy = log_p + 0.1 * np.random.default_rng(seed).normal(size=len(log_p))
        found = smooth(points, noisy, w, parts, [0, 1])
        assert found is not None and 0.0 < found.error < 1.0
        s = np.exp(-points)
        for kept, weights in ((raw, w), (tilted, found.weights)):
            m = weights @ s
            kept.append(np.concatenate([(m - mean) / sd, np.log(np.sqrt(weights @ (s - m) ** 2) / sd)]))
    raw, tilted = np.array(raw), np.array(tilted)
    assert np.max(np.abs(tilted)) < 0.05
    assert np.sqrt(np.mean(tilted**2)) < 0.4 * np.sqrt(np.mean(raw**2))


def test_few_points_and_many_coordinates_are_left_as_they_are():
    points, log_p, w, parts = weighted(0, 32)
    assert smooth(points, log_p, w, parts, [0, 1]) is None
    assert smooth(np.tile(points, 3), log_p, w, parts, [0]) is None
