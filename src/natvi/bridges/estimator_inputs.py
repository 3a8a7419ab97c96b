"""What scikit-learn's estimators take, and what is said to those who bring something else."""

from typing import Any

import numpy as np
import pandas as pd


def checked_inputs(estimator: Any, X: Any, *responses: Any, reset: bool = True, **checks: Any) -> Any:
    """Check inputs, and responses, as scikit-learn does; tell those who bring text or dates what to do."""
    from sklearn.utils.validation import validate_data

    least = 2 if responses else 1
    options: Any = checks | {"reset": reset, "dtype": np.float64, "ensure_min_samples": least}
    try:
        return validate_data(estimator, X, *responses, **options)
    except (ValueError, TypeError) as error:
        if "could not convert string" in str(error):
            raise ValueError(
                f"{error}. Inputs must be numbers: encode text columns first, e.g. with "
                "sklearn.preprocessing.OneHotEncoder in a pipeline."
            ) from error
        if strange := _not_numbers(X):
            raise ValueError(
                f"The columns {', '.join(strange)} are no numbers: make numbers of them first, of dates e.g. days."
            ) from error
        raise


def _not_numbers(X: Any) -> list[str]:
    """Return columns of a frame that are neither numbers nor text, such as dates."""
    if not isinstance(X, pd.DataFrame):
        return []
    kinds = {str(name): dtype for name, dtype in zip(X.columns, X.dtypes, strict=True)}
    return [f"{name!r} ({kind})" for name, kind in kinds.items() if kind.kind in "mMc"]


def check_labels(y: Any) -> None:
    """Refuse labels among which some are missing.

    Example:
        >>> check_labels(["yes", "no"])
    """
    missing = 0 if np.ndim(y) == 0 else int(np.sum(pd.isna(y)))
    if missing:
        raise ValueError(f"y holds {missing} missing labels of {len(y):,}. Remove those rows, or give them a label.")
