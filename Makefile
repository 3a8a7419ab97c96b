# natvi: everything a newcomer needs. `make demo` and `make test` set up what they need by themselves.
#
#   make demo     fit a mixed model to the Epilepsy data and show it
#   make test     format, lint, types, tests, doctests, documentation: what continuous integration runs
#   make setup    the development environment alone, in .venv
#   make lint | types | docs    one of the checks
#   make clean    remove caches and built pages
#
# Needs Python 3.11 or later and make. Another interpreter: make test PYTHON=/path/to/python3.12
# Benchmarks against peers are run by hand, never by `make test`: .venv/bin/python -m benchmarks all

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
WORKERS ?= 2

# A caller's own Python settings must not leak into the environment built here.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONOPTIMIZE PYTHONWARNINGS PYTHONSAFEPATH PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV CONDA_PREFIX
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV PYTEST_ADDOPTS RUFF_CONFIG
unexport PYRIGHT_PYTHON_FORCE_VERSION PYRIGHT_PYTHON_PYLANCE_VERSION
export PYTHONNOUSERSITE := 1
# pyright's wheel and the Node.js wheel hold all that pyright runs: nothing is fetched, nothing asked for.
export PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo test setup lint types docs bench clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:
	@sed -n '3,7s/^#   //p' Makefile

demo: $(VENV)/.natvi-run
	@echo "==> natvi demo: the Epilepsy data"
	@$(BIN)/natvi demo

test: $(VENV)/.natvi-dev
	@$(lint)
	@$(types)
	@echo "==> pytest: tests"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow"
	@echo "==> pytest: doctests"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --doctest-modules src/natvi
	@$(docs)
	@echo "==> all checks passed"

setup: $(VENV)/.natvi-dev
	@echo "==> ready: $(BIN)/python"

lint: $(VENV)/.natvi-dev
	@$(lint)

types: $(VENV)/.natvi-dev
	@$(types)

docs: $(VENV)/.natvi-dev
	@$(docs)

# Not part of `make test`: timings need an idle machine.
bench:
	@echo "benchmarks are run by hand: $(BIN)/python -m benchmarks {step,glm,glmm,deep,posteriors,cold,parts,fuzz}"

clean:
	@echo "==> removing caches and built pages ($(VENV) stays; rm -r $(VENV) removes it)"
	@rm -rf site build dist .pytest_cache .ruff_cache .hypothesis .cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the checks, each said in one line -------------------------------------------------------------------

define lint
echo "==> ruff: format and lint" && $(BIN)/ruff format --check . && $(BIN)/ruff check .
endef

define types
echo "==> pyright: types" && $(BIN)/pyright
endef

define docs
echo "==> mkdocs: documentation" && $(BIN)/mkdocs build --quiet --strict
endef

# --- the environment, in three stamped steps -------------------------------------------------------------

# The first interpreter that is new enough and can build environments.
define find_python
found=; old=; bare=; \
for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11); do \
  "$$candidate" -c '' 2>/dev/null || continue; \
  if ! "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then old=$${old:-$$candidate}; continue; fi; \
  if ! "$$candidate" -c 'import venv, ensurepip' 2>/dev/null; then bare=$${bare:-$$candidate}; continue; fi; \
  found=$$candidate; break; \
done; \
if [ -z "$$found" ] && [ -n "$$bare" ]; then \
  version=$$("$$bare" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
  echo "natvi: $$bare cannot create environments (no venv or ensurepip). On Debian or Ubuntu:" >&2; \
  echo "    sudo apt install python3-venv    (or python$$version-venv)" >&2; \
  exit 1; \
fi; \
if [ -z "$$found" ]; then \
  if [ -n "$$old" ]; then echo "natvi: needs Python 3.11 or later, but $$old is $$("$$old" -V 2>&1)." >&2; \
  else echo "natvi: needs Python 3.11 or later, and none was found$(if $(PYTHON), at $(PYTHON))." >&2; fi; \
  echo "    Install one, or name it: make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python3.12" >&2; \
  exit 1; \
fi
endef

# An environment that works already is kept, and given pip if it has none.
$(VENV)/.natvi-venv:
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "==> using the environment in $(VENV)"; \
	  $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
	else \
	  $(find_python); \
	  echo "==> creating an environment in $(VENV) with $$found"; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	@echo "==> upgrading pip"
	@$(PIP) install --upgrade pip
	@touch $@

$(VENV)/.natvi-run: pyproject.toml $(VENV)/.natvi-venv
	@echo "==> installing natvi (a minute or two the first time)"
	@$(PIP) install -e .
	@touch $@

# The development environment holds all of the plain one.
$(VENV)/.natvi-dev: pyproject.toml $(VENV)/.natvi-venv
	@echo "==> installing natvi and its development tools (a few minutes the first time)"
	@$(PIP) install -e '.[dev]'
	@touch $(VENV)/.natvi-run $@
