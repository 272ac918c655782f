# Needs Python >= 3.11 and make. Everything is installed into .venv, in the versions of constraints.txt.

# The first of these that is new enough; or say it yourself: make test PYTHON=/path/to/python3.12
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	if "$$python" -c $(NEW_ENOUGH) 2>/dev/null; then echo "$$python"; exit; fi; done; echo python3)
NEW_ENOUGH = 'import sys; sys.exit(sys.version_info < (3, 11))'

# The interpreters of `make test-core`; those that do not start are left out.
PYTHONS ?= python3.11 python3.12 python3.13

# More arguments for pytest (make test PYTEST_ARGS='-x -k nesterov') and for the benchmark.
PYTEST_ARGS ?=
BENCH_ARGS ?=

PY = .venv/bin/python
# What an editable installation does not notice by itself.
BUILT = pyproject.toml CMakeLists.txt src/aggmo/torch/kernel.c
PIP_INSTALL = -m pip install --quiet
TORCH = "$$(grep '^torch==' constraints.txt)"

# Also binds the environments that pip makes for builds: by the first in older versions of pip, by the second in newer.
export PIP_CONSTRAINT = constraints.txt
export PIP_BUILD_CONSTRAINT = constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test test-core lint type contracts bench docs dist constraints clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: .venv/.demo ## make every figure, table and claim of the paper at scale `quick`, as one page in build/demo
	.venv/bin/aggmo reproduce --scale quick --out build/demo

test: .venv/.dev ## run the tests and the examples in the docstrings
	$(PY) -m pytest $(PYTEST_ARGS)

test-core: ## test what needs no framework under each Python of PYTHONS, with the oldest and the pinned NumPy
	@PYTHONS="$(PYTHONS)" .ci/test-core $(PYTEST_ARGS)

lint: .venv/.dev ## check format and style
	$(PY) -m ruff format --check
	$(PY) -m ruff check

type: .venv/.dev ## check types
	$(PY) -m mypy

contracts: .venv/.dev ## check that imports go the allowed way
	.venv/bin/lint-imports

bench: .venv/.dev ## time one optimizer step beside its peers, and write docs/performance.md
	$(PY) benchmarks/step.py $(BENCH_ARGS)

docs: .venv/.dev ## build the documentation into build/docs
	$(PY) -m sphinx -q -E -W --keep-going docs build/docs
	@echo "build/docs/index.html"

dist: .venv/.dev ## build sdist and wheel, and test the wheel outside the checkout
	rm -rf dist
	$(PY) -m build
	$(PY) -m twine check --strict dist/*
	$(PY) -m venv --clear build/dist
	build/dist/bin/python $(PIP_INSTALL) $(TORCH)
	build/dist/bin/python $(PIP_INSTALL) "$$(echo ./dist/*.whl)[all,bench,dev]"
	python=$$PWD/build/dist/bin/python && outside=$$(mktemp -d) && trap 'rm -rf "$$outside"' EXIT && \
	cp -R pyproject.toml README.md tests examples benchmarks docs "$$outside" && cd "$$outside" && \
	"$$python" -m pytest --ignore=tests/test_repository.py tests --pyargs aggmo $(PYTEST_ARGS)

constraints: ## resolve constraints.txt anew, for the torch it pins
	mkdir -p build
	grep '^torch==' constraints.txt > build/torch.txt
	$(PYTHON) -m venv --clear build/constraints
	PIP_CONSTRAINT=build/torch.txt build/constraints/bin/python $(PIP_INSTALL) -r build/torch.txt
	PIP_CONSTRAINT=build/torch.txt PIP_BUILD_CONSTRAINT= build/constraints/bin/python $(PIP_INSTALL) \
		'.[all,bench,docs,dev]' scikit-build-core cmake ninja
	build/constraints/bin/python -m pip freeze --all --exclude aggmo --exclude pip > build/frozen.txt
	{ grep '^#' constraints.txt; sed 's/+.*//' build/frozen.txt; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean: ## remove everything that these targets made
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# A stamp appears only after its step has succeeded: a run that was killed is taken up again by the next.
.venv/.made:
	@$(PYTHON) -c $(NEW_ENOUGH) 2>/dev/null || \
		{ echo "AggMo needs Python >= 3.11, which '$(PYTHON)' is not; say where it is: make PYTHON=..." >&2; exit 1; }
	@echo "Installing into .venv; this takes some minutes the first time."
	$(PYTHON) -m venv --clear .venv
	@touch $@

# By itself and first: asked for together with others, pip may take a newer build, with gigabytes for GPUs.
.venv/.torch: .venv/.made constraints.txt
	$(PY) $(PIP_INSTALL) $(TORCH)
	@touch $@

.venv/.demo: .venv/.torch $(BUILT)
	$(PY) $(PIP_INSTALL) -e '.[lab]'
	@touch $@

.venv/.dev: .venv/.torch $(BUILT)
	$(PY) $(PIP_INSTALL) -e '.[all,bench,docs,dev]'
	@touch $@
