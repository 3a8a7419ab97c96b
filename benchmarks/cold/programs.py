"""The programs whose whole run is timed, from the start of the process to its end."""

from typing import NamedTuple

TOENAIL = "infect ~ trt*time + (1 | idnr)"
EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"
# one process: what is fitted one after the other
STAGES = (
    "2,148 binary rows in 537 groups, first fit",
    "the same again",
    "500 of the groups",
    "one term fewer",
    "Toenail, a warm fit",
    "Toenail, ten-fold cross-validation",
    "Toenail, one term fewer",
)


class Problem(NamedTuple):
    """A program of ours: its part of the benchmark, and whether compiled programs are there when it begins."""

    part: str
    name: str
    words: tuple[str, ...]
    cold: bool = False
    warmed: bool = False

    def command(self, python: str, folder: str) -> list[str]:
        """Return the command line."""
        return [python, *(word.replace("FOLDER", folder) for word in self.words)]


class Peer(NamedTuple):
    """A program of others."""

    name: str
    tool: str
    in_r: bool
    text: str

    def words(self, folder: str) -> list[str]:
        """Return what follows the interpreter on the command line."""
        text = self.text.replace("FOLDER", folder)
        return ["--vanilla", "-e", text] if self.in_r else ["-c", text]


def _first(data: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.cold.session", "first", data)


def _terminal(method: str) -> tuple[str, ...]:
    options = ("--family", "bernoulli", "--method", method)
    return ("-m", "natvi", "fit", "FOLDER/toenail.csv", TOENAIL, *options)


COMMANDS = (
    Problem("import", "import jax", ("-c", "import jax")),
    Problem("import", "import natvi", ("-c", "import natvi")),
    Problem("import", "import natvi with the door of mixed models", ("-c", "import natvi; natvi.glmm")),
    Problem("first", "Epilepsy, auto, to the summary, no programs kept", _first("epilepsy"), cold=True),
    Problem("first", "Epilepsy, auto, to the summary", _first("epilepsy"), warmed=True),
    Problem("first", "537 groups, auto, to the summary, no programs kept", _first("binary"), cold=True),
    Problem("first", "537 groups, auto, to the summary", _first("binary"), warmed=True),
    Problem("terminal", "natvi fit toenail.csv, gva", _terminal("gva"), warmed=True),
    Problem("terminal", "natvi fit toenail.csv, auto", _terminal("auto"), warmed=True),
)

_LME4 = """suppressMessages(library(lme4)); d <- read.csv("FOLDER/{data}.csv")
print(summary(glmer({formula}, data = d, family = {family})))"""
_TMB = """suppressMessages(library(glmmTMB)); d <- read.csv("FOLDER/{data}.csv")
print(summary(glmmTMB({formula}, data = d, family = {family})))"""
_STATSMODELS = f"""import pandas as pd, statsmodels.api as sm, statsmodels.formula.api as smf
d = pd.read_csv("FOLDER/toenail.csv")
alike = sm.cov_struct.Exchangeable()
model = smf.gee({TOENAIL.split(" + (")[0]!r}, "idnr", d, family=sm.families.Binomial(), cov_struct=alike)
print(model.fit().summary())"""


def _in_r(name: str, data: str, formula: str, family: str) -> tuple[Peer, Peer]:
    words = {"data": data, "formula": formula, "family": family}
    return Peer(name, "lme4", True, _LME4.format(**words)), Peer(name, "glmmTMB", True, _TMB.format(**words))


PEERS = (
    *_in_r("Epilepsy, from a file to the summary", "epilepsy", EPILEPSY, "poisson"),
    *_in_r("Toenail, from a file to the summary", "toenail", TOENAIL, "binomial"),
    Peer("Toenail, population average (GEE), from a file to the summary", "statsmodels", False, _STATSMODELS),
)
