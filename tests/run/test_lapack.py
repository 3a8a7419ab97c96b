"""LAPACK is found without the rest of SciPy, which is whole afterwards."""

import subprocess
import sys

CODE = """
import sys
from natvi.run.lapack import find_lapack
find_lapack(), find_lapack()
print([name for name in sys.modules if name.startswith("scipy.linalg")])
import jax.numpy as jnp
assert float(jnp.linalg.cholesky(4.0 * jnp.eye(2))[1, 1]) == 2.0
import numpy as np, scipy.linalg, scipy.linalg.cython_blas, scipy.optimize
assert scipy.linalg.solve(2.0 * np.eye(2), np.ones(2)).tolist() == [0.5, 0.5]
assert "dpotrf" in scipy.linalg.cython_lapack.__pyx_capi__
"""


def test_scipy_is_whole_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


def test_scipy_that_was_imported_before_stays() -> None:
    code = "import scipy.linalg as before\n" + CODE.replace("print(", "str(") + "assert scipy.linalg is before\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
