"""How good an approximation is: discrepancy to a sample of the posterior, and quality of predictions."""

from natvi.metrics.mmd import MmdMeasure, mmd_measure, squared_mmd
from natvi.metrics.predictive import accuracy, calibration_error, predictive_probabilities, test_log_likelihood

__all__ = [
    "MmdMeasure",
    "accuracy",
    "calibration_error",
    "mmd_measure",
    "predictive_probabilities",
    "squared_mmd",
    "test_log_likelihood",
]
