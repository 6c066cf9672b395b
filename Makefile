# Two commands do all set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# PyTorch's own index of CPU builds; used only where pip's configured places do not have the build.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: help demo test lint format schema golden clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready: pyproject.toml requirements/cpu.txt requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "pip>=25"
	$(BIN)/pip install --quiet --no-deps -r requirements/cpu.txt \
	  || $(BIN)/pip install --quiet --no-deps --extra-index-url $(TORCH_CPU_INDEX) -r requirements/cpu.txt
	$(BIN)/pip install --quiet -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	$(BIN)/python -m prlc.runtime.inference.vllm_alias
	touch $@

demo: $(VENV)/.ready  ## plan, build and run 80 asynchronous RL steps of a tiny MoE on this machine
	examples/demo.sh $(VENV)

test: $(VENV)/.ready  ## the whole test suite; Slurm tests skip without root or Slurm
	$(BIN)/pytest

lint: $(VENV)/.ready  ## ruff, then mypy on an installed copy (an editable install is invisible to mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/lint build/lib && $(BIN)/pip install --quiet --no-deps --target build/lint .
	MYPYPATH=build/lint $(BIN)/mypy

format: $(VENV)/.ready  ## let ruff rewrite the files
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

schema: $(VENV)/.ready  ## write schema/*.schema.json from the dataclasses
	$(BIN)/python -m prlc.schema.generate

golden: $(VENV)/.ready  ## write tests/golden from the examples; read the diff before you commit it
	$(BIN)/python -m tests.golden.update

clean:  ## remove the environment and what the demo left
	rm -rf $(VENV) build runs
