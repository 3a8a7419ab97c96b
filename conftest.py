"""What tests and the examples in docstrings share: no windows, a float32 process, code that is compiled quickly."""

import gc
import os
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"
os.environ.pop("JAX_ENABLE_X64", None)
# Data are tiny and compilation is the cost of a test: machine code is not optimised (at level 1 tests took half as long
# again), programs are not cut into parts (a tenth more), fused operations are emitted the older, quicker way, and all
# workers and the processes that tests start share one folder of programs, which is kept for the next run.
# XLA_FLAGS="--xla_backend_optimization_level=3 --xla_cpu_use_fusion_emitters=true" tests the very code that users get.
QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
os.environ["XLA_FLAGS"] = f"{QUICK} {os.environ.get('XLA_FLAGS', '')}"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent / ".cache" / "tests")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.03"

# Compiled programs are many objects, and to look through them after every 700 new ones takes a tenth of the time.
gc.set_threshold(50_000, 20, 50)
