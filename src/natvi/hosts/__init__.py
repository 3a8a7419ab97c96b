"""Many processes that fit one model together, each with its own part of the rows.

`join()` starts or finds JAX's distributed runtime; after it the doors take what they are given as this process's part.
Tables larger than memory come as sources: `parquet`, `arrays`, `pieces`.
"""

from natvi.hosts.collect import HostLostError as HostLostError
from natvi.hosts.effects import write_effects as write_effects
from natvi.hosts.joining import join as join
from natvi.hosts.joining import leave as leave
from natvi.hosts.tables import arrays as arrays
from natvi.hosts.tables import parquet as parquet
from natvi.hosts.tables import pieces as pieces
