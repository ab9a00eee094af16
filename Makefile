# Every target but `help` and `clean` makes .venv ready first (tools/bootstrap.py): once, and again when the pins change.
#   PYTHON=python3.12   the Python to use (3.10 or later)
#   TORCH=cpu|cuda      the build of torch; by default yours if it suits, else the CPU build, or CUDA beside an NVIDIA GPU
PYTHON ?= python3
TORCH ?= auto
BOOTSTRAP ?= "$(PYTHON)" tools/bootstrap.py --torch "$(TORCH)"

# Tools are called as modules: the first line of an installed script breaks in a path with a space.
IN = .venv/bin/python -m
TYPED = --jaxtyping-packages=laworder.law,laworder.order,laworder.metrics,beartype.beartype

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test quick typed lint format docs clean

help:
	@echo "make demo    the whole story on phantom data, in minutes; ends by naming the HTML report"
	@echo "make test    every test, and the coverage of src/ (at least 90 %)"
	@echo "make quick   the tests that are not marked slow, without coverage"
	@echo "make typed   the pure-tensor rooms' tests once more, with array shapes checked at run time"
	@echo "make lint    ruff, pyright, and the order of the rooms"
	@echo "make format  ruff's formatting and its safe fixes"
	@echo "make docs    the documentation site, into site/"
	@echo "make clean   remove .venv, caches and built files; runs and reports stay"

demo:
	@$(BOOTSTRAP) --level synth
	@$(IN) laworder demo

test:
	@$(BOOTSTRAP) --level test
	@$(IN) pytest -n 2 --dist worksteal --durations 25 --durations-min 5 --cov --cov-report=term --cov-fail-under=90

quick:
	@$(BOOTSTRAP) --level test
	@$(IN) pytest -n 2 -m "not slow"

typed:
	@$(BOOTSTRAP) --level test
	@$(IN) pytest -q -n 2 -m "not slow and not untyped" $(TYPED) $(wildcard tests/law tests/order tests/metrics)

lint:
	@$(BOOTSTRAP) --level test
	@$(IN) ruff check .
	@$(IN) ruff format --check .
	@$(IN) pyright --pythonpath .venv/bin/python
	@.venv/bin/python -c "from importlinter.cli import lint_imports_command as run; run()" --no-logo

format:
	@$(BOOTSTRAP) --level test
	@$(IN) ruff check --fix .
	@$(IN) ruff format .

docs:
	@$(BOOTSTRAP) --level dev
	@NO_MKDOCS_2_WARNING=1 $(IN) mkdocs build --strict --quiet

clean:
	rm -rf .venv .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist site
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
