# Two commands for a fresh clone: `make demo` and `make test`. Both create .venv and install on first use.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= runs/demo
ZOO_OUT ?= runs/zoo
ZOO_SEEDS ?= 0
ZOO_JOBS ?= 1
ZOO_METHODS ?=
PYTHON ?= python3.11
MINUTES ?= 5
GPU_OUT = $(if $(filter command line,$(origin OUT)),$(OUT),notebook/gpu)
PINS ?= -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo zoo bench gpu-report docs lint audit sbom test test-slow test-timing test-all wheel release-check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

install: $(STAMP) ## create .venv and install faceanon with its development tools

$(BIN)/python:
	@for name in python3.11 python3 python; do \
	  if command -v $$name >/dev/null 2>&1 && $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "[install] creating $(VENV) with $$($$name --version)"; exec $$name -m venv $(VENV); fi; done; \
	echo "error: faceanon needs Python 3.11 or newer and found none: install python3.11 and run make again" >&2; exit 2

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "[install] installing faceanon and its dependencies into $(VENV) (about 6 GB, a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,dev,docs,web,onnx,judge,c2pa]'
	@touch $@
	@echo "[install] done"

demo: $(STAMP) ## train Persona briefly on synthetic photographs, test it, write a report (about 10 minutes on 2 cores, installation included; 20 where they have no bfloat16)
	@echo "[demo] stage 1, stage 2, test, report; results go to $(OUT)"
	@$(BIN)/faceanon demo --out $(OUT)

zoo: $(STAMP) ## train each method on photographs as long as it needs, test all, one table and a sheet; resumes (hours; ZOO_SEEDS, ZOO_METHODS, ZOO_JOBS)
	@echo "[zoo] photographs of 128 px, seeds $(ZOO_SEEDS); results go to $(ZOO_OUT)"
	@$(BIN)/faceanon zoo --seeds $(ZOO_SEEDS) $(if $(ZOO_METHODS),--methods $(ZOO_METHODS)) --jobs $(ZOO_JOBS) --out $(ZOO_OUT)

bench: $(STAMP) ## measure time, memory and share of the machine's peak of named cases, into notebook/bench
	@$(BIN)/python benchmarks/measure.py --out notebook/bench --page notebook/bench.md

gpu-report: $(STAMP) ## measure stage 2 on a GPU against the released pattern, and profile it (OUT; ROOT, BUNDLE, MINUTES add trainings)
	@echo "[gpu-report] results go to $(GPU_OUT)"
	@$(BIN)/python benchmarks/gpu_report.py --out $(GPU_OUT) $(if $(ROOT),--root $(ROOT) --bundle $(BUNDLE) --minutes $(MINUTES),--only speed profile)

docs: $(STAMP) ## build the documentation as a site in build/site (strict, no network)
	@echo "[docs] mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "[docs] open build/site/index.html; with search: $(BIN)/python -m http.server -d build/site"

lint: $(STAMP) ## ruff and mypy
	@echo "[lint] ruff check, ruff format --check, mypy"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: lint ## ruff, mypy and the default tests (no network)
	@echo "[test] pytest, without the tests marked slow"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -m "not slow and not network and not timing"

test-slow: $(STAMP) ## the tests marked slow: training, DDP, whole commands
	@echo "[test-slow] pytest, the tests marked slow"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "slow and not network"

test-timing: $(STAMP) ## the tests that compare speeds: for a machine that does nothing else
	@echo "[test-timing] pytest, the tests marked timing"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m timing

test-all: test test-slow test-timing ## everything but the tests that need the internet

audit: $(STAMP) ## compare what is installed with pins, known bad versions and licences (no network)
	@$(BIN)/python .ci/audit.py

sbom: $(STAMP) ## write the bill of materials to build/sbom.json (CycloneDX 1.6)
	@$(BIN)/python .ci/sbom.py build/sbom.json

wheel: $(STAMP) ## build the wheel and the source archive into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build -t sdist -t wheel -d dist

release-check: wheel ## install the wheel into a fresh environment (PYTHON, PINS) and use it outside the repository
	@echo "[release-check] $$($(PYTHON) --version), $(PINS)"
	@rm -rf build/release && mkdir -p build/release/empty
	@$(PYTHON) -m venv build/release/env
	@build/release/env/bin/python -m pip install --quiet --disable-pip-version-check $(PINS) "$$(ls dist/*.whl)[train]"
	@cd build/release/empty && ../env/bin/python ../../../tests/release/smoke.py

clean: ## remove caches and build output; keeps .venv and runs/
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
