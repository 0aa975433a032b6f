# Everything runs from a fresh clone with Python 3.11, gcc and pip. `make` alone lists the targets.
# Another interpreter: make test PYTHON=/path/to/python3.12

PYTHON ?= $(shell python3.11 -c 'import sys; print(sys.executable)' 2>/dev/null || command -v python3)

# Development environment: this tree, editable, with the tools. Demo environment: an ordinary install, as users have it.
VENV := .venv
DEMO_VENV := .venv-demo
READY := $(VENV)/ready
DEMO_READY := $(DEMO_VENV)/ready

# Benchmark environment: an ordinary install beside the tools that it is compared with.
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/ready

# Another torch or Python: make test-torch TORCH=2.6.0 PYTHON=/path/to/python3.12 TESTS=tests/capture
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
TESTS ?= tests
WORKERS ?= 2

# The libraries of W&B, TensorBoard and MLflow, which the development environment does not have.
TRACKERS_VENV := .venv-trackers
TORCH_VENV = .venv-torch-$(TORCH)-py$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

DEMO_OUT := build/demo
DEMO_RUN := $(DEMO_VENV)/bin/steadytrain run --policy stop examples/stdlib_gpt/train.py --out $(DEMO_OUT)
STOPPED := 70

# Many short processes import torch in the tests, and would compile its modules again without kept bytecode.
unexport PYTHONDONTWRITEBYTECODE

PACKAGE_FILES := $(shell find src -type f -not -path '*/__pycache__/*') README.md LICENSE

.PHONY: help demo demo-healthy test pytest test-all test-torch test-trackers golden lint bench bench-gpu bench-rewind bench-locate bench-repro bench-store bench-statistics bench-symptoms bench-early bench-scripts bench-data bench-trials bench-against bench-guard zoo zoo-unseen pages docs docs-check newcomer site site-serve release-check clean bench-top bench-ui bench-ranks ways

help:
	@echo "make demo          a real training run goes wrong, is stopped, diagnosed and mended; some three minutes after the install"
	@echo "make demo-healthy  the same run without its mistake, to the end"
	@echo "make test          lint, types, layers and tests"
	@echo "make test-all      the same with long tests and those that need a GPU"
	@echo "make test-torch    the tests in an environment of their own (TORCH=2.6.0, PYTHON=python3.12, TESTS=tests/capture)"
	@echo "make test-trackers the exporters against W&B, TensorBoard and MLflow themselves, in an environment of their own; four minutes"
	@echo "make lint          lint, types and layers"
	@echo "make golden        write the frozen texts again (public API, help of each command): only when a change is meant"
	@echo "make bench         what watching costs, ours and others', as a table; about twenty minutes"
	@echo "make bench-gpu     the same on a GPU, eager and compiled; under eight minutes"
	@echo "make bench-statistics  what measuring tensors costs by itself; two minutes"
	@echo "make bench-rewind  what the tape and the snapshots cost; three minutes"
	@echo "make bench-locate  what a look at a step costs, in steps; four minutes"
	@echo "make bench-repro   lines, kilobytes and seconds of repro for every non-finite case of the zoo; fifteen minutes"
	@echo "make bench-store   what the store costs at 10,000 tensors and a million steps; some minutes, 3 GB of disk"
	@echo "make bench-symptoms  false alarms, misses and cost of the detectors, beside the rules of others; under ten minutes (LOGS=DIR: labelled logs too)"
	@echo "make bench-early   faults and healthy runs in their first steps: found, how late, false alarms; half an hour (UNSEEN=1: families of another hand)"
	@echo "make bench-scripts  401 scripts of another hand: silent faults that are named, healthy ones that are not; an hour"
	@echo "make bench-trials  which trial removes which incident, on a byte-level GPT; under ten minutes"
	@echo "make bench-data  what check-data costs over a gigabyte of JSON Lines; ten minutes, 1 GB of disk"
	@echo "make attack        kills, full disks, ways to train, mutants, secrets, errors of ours: tried and survived; fifteen minutes (FORM=--quick, ONLY=name, INTO=folder adds up)"
	@echo "make bench-against  how often the first fix mends a run, ours against rules of practice and a coin; 40 minutes (EVERY=3, ONLY=name)"
	@echo "make bench-top     what \`top\` costs on a million steps and beside a run of 100 steps a second; three minutes"
	@echo "make bench-ui      what \`ui\` costs: a million steps opened and zoomed, 50 pages beside a run of 100 steps a second; four minutes"
	@echo "make bench-guard    nine faults, five seeds: the guard against clipping, ZClip, skip-step, AdaGC and rewinding; 20 minutes (ONLY=name)"
	@echo "make ways          a script for each of 27 frameworks, each in an environment of its own, bare against watched: docs/ways.md; an hour or two, goes on where it was cut off (ONLY=name, AGAIN=1, KEEP=1)"
	@echo "make zoo           every run of the zoo diagnosed and its fix tried: docs/scoreboard.md; an hour or two"
	@echo "make pages         pages of three runs of the zoo and those of \`ui\`, opened in Chromium: screenshots, overflow, contrast, keys, console; five minutes (ONLY=name)"
	@echo "make docs          the pages of docs/ that are made of the plug-ins' docstrings"
	@echo "make release-check builds, reads, installs and lists the release, from a fresh clone; five minutes (FINAL=1: the tag is next)"
	@echo "make docs-check    every command and code block of README and docs, run as written; half an hour (ONLY=name of a page, FROM=guides/ci: that page and those after it)"
	@echo "make newcomer      docs/first-ten-minutes.md as a new user: empty folder, new environment, no network after the install; some minutes"
	@echo "make site          the site of docs in build/site, links checked; opens without a server and without a network"
	@echo "make site-serve    the same while pages are written"
	@echo "make clean         remove environments, caches and what the demo wrote"

demo: $(DEMO_READY)
	@mkdir -p $(DEMO_OUT)
	$(DEMO_RUN); status=$$?; test $$status -eq $(STOPPED) || { echo "demo: expected exit status $(STOPPED), got $$status"; exit 1; }
	$(DEMO_VENV)/bin/steadytrain show
	$(DEMO_VENV)/bin/steadytrain diagnose
	$(DEMO_VENV)/bin/steadytrain fix
	$(DEMO_VENV)/bin/steadytrain report -o demo-report.html
	@echo
	@echo "The run was stopped with exit status $(STOPPED) before the bad update. Its report: demo-report.html"
	@echo "Next: make demo-healthy    (the same run, cut at the other end, trains to the end)"

demo-healthy: $(DEMO_READY)
	@mkdir -p $(DEMO_OUT)
	$(DEMO_RUN) --truncation-side left
	$(DEMO_VENV)/bin/steadytrain show

# The type checker runs beside the tests, on one core of the two.
test: $(READY)
	$(MAKE) --jobs 2 lint pytest

pytest: $(READY)
	$(VENV)/bin/pytest -n 2 --dist worksteal -m "not gpu and not long"

test-all: lint
	STEADYTRAIN_COLD_TESTS=1 $(VENV)/bin/pytest -n 2

# A version that is not the CPU build brings its CUDA libraries: 5 GB of disk, four minutes.
test-torch:
	$(MAKE) $(TORCH_VENV)/ready
	$(TORCH_VENV)/bin/steadytrain doctor
	$(TORCH_VENV)/bin/pytest -n $(WORKERS) -m "not gpu and not long" $(TESTS)

.venv-torch-%/ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	echo "torch==$(TORCH)" > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install -qq --no-compile --disable-pip-version-check "torch==$(TORCH)"
	$(@D)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint $(@D)/constraints.txt --editable '.[dev,report,demo,query]'
	@touch $@

# The exporters against the real libraries. Where these are not installed, `make test` skips their tests.
test-trackers: $(TRACKERS_VENV)/ready
	$(TRACKERS_VENV)/bin/pytest -n $(WORKERS) -rs tests/exporters

$(TRACKERS_VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt torch
	$(@D)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev,report,demo,query,tensorboard,wandb,mlflow]'
	@touch $@

golden: $(READY)
	PYTHONPATH=tests $(VENV)/bin/python tests/golden_files.py

lint: $(READY)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# Hand-written attacks on the promises. FORM=--quick is the short form, two minutes.
attack: $(READY)
	$(VENV)/bin/python benchmarks/attack.py $(FORM) $(if $(ONLY),--only $(ONLY)) $(if $(INTO),--into $(INTO))

bench: $(BENCH_READY)
	$(BENCH_VENV)/bin/python benchmarks/overhead.py

bench-gpu: $(BENCH_READY)
	$(BENCH_VENV)/bin/python benchmarks/overhead_gpu.py

bench-statistics: $(READY)
	$(VENV)/bin/python benchmarks/tensor_statistics.py

bench-rewind: $(READY)
	$(VENV)/bin/python benchmarks/rewind.py

bench-locate: $(READY)
	$(VENV)/bin/python benchmarks/locate.py

bench-repro: $(READY)
	$(VENV)/bin/python benchmarks/repro.py

bench-store: $(READY)
	$(VENV)/bin/python benchmarks/store.py

bench-symptoms: $(READY)
	$(VENV)/bin/python benchmarks/symptoms.py $(if $(LOGS),--logs $(LOGS))

bench-scripts: $(READY)
	$(VENV)/bin/python benchmarks/script_faults.py

bench-early: $(READY)
	$(VENV)/bin/python benchmarks/$(if $(WATCHED),early_watched.py --every $(or $(EVERY),1) --into build/early_watched.jsonl,early.py $(if $(UNSEEN),--unseen))

bench-data: $(READY)
	$(VENV)/bin/python benchmarks/data_checks.py

bench-trials: $(READY)
	$(VENV)/bin/python benchmarks/trial_matrix.py --docs docs/trials.md

bench-against: $(READY)
	$(VENV)/bin/python benchmarks/against.py $(if $(EVERY),--every $(EVERY)) $(if $(ONLY),--only $(ONLY))

bench-top: $(READY)
	$(VENV)/bin/python benchmarks/top_cost.py

bench-ui: $(READY)
	$(VENV)/bin/python benchmarks/ui_load.py

bench-ranks: $(READY)
	$(VENV)/bin/python benchmarks/ranks.py $(if $(ONLY),--only $(ONLY))
	$(VENV)/bin/python benchmarks/ranks.py --cost
	$(VENV)/bin/python benchmarks/ranks.py --growth

bench-guard: $(READY)
	$(VENV)/bin/python benchmarks/guard_against.py $(if $(ONLY),--only $(ONLY))

ways: $(READY)
	$(VENV)/bin/python benchmarks/ways.py --docs docs/ways.md $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again) $(if $(KEEP),--keep)

zoo: $(READY)
	$(VENV)/bin/python zoo/scoreboard.py --write docs/scoreboard.md $(if $(ONLY),--only $(ONLY))

zoo-unseen: $(READY)
	$(VENV)/bin/python zoo/unseen_board.py $(if $(OPENED),--opened) $(if $(EVERY),--every $(EVERY)) $(if $(ONLY),--only $(ONLY))

pages: $(READY)
	$(VENV)/bin/python benchmarks/pages.py $(if $(ONLY),--only $(ONLY))
	$(VENV)/bin/python benchmarks/ui_pages.py build/pages/runs/$(or $(ONLY),nan_row) --out build/pages/ui

docs: $(READY)
	$(VENV)/bin/python -m steadytrain.cli._catalogues docs

# Wheel, sdist and SBOM are left in build/release. Nothing is uploaded, and no tag is made: docs/releasing.md.
release-check:
	$(PYTHON) release/check.py $(if $(FINAL),--final)

# A new user's first page, from an empty folder with an empty home: installs torch, takes some minutes.
newcomer: $(READY)
	$(VENV)/bin/python release/newcomer.py

docs-check: $(READY)
	DOC_FROM=$(FROM) $(VENV)/bin/pytest --verbose --durations 0 tests/docs $(if $(ONLY),-k $(ONLY))

site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	$(VENV)/bin/python website/other_hosts.py build/site

site-serve: $(READY)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve

clean:
	rm -rf $(VENV) $(DEMO_VENV) $(BENCH_VENV) $(TRACKERS_VENV) build demo-report.html .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# torch goes in first and by itself, held by the constraints, so that nothing else chooses its version.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev,report,demo,query]'
	@touch $@

$(DEMO_READY): pyproject.toml constraints.txt $(PACKAGE_FILES)
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt torch
	$(DEMO_VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt '.[report,demo]'
	@touch $@

# The tools must not choose torch, so it is there before them; one that does not install is listed in the table.
$(BENCH_READY): pyproject.toml constraints.txt benchmarks/requirements.txt $(PACKAGE_FILES)
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt torch
	$(BENCH_VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt .
	grep -v '^#' benchmarks/requirements.txt | while read -r tool; do \
		$(BENCH_VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt "$$tool" \
			|| echo "$$tool does not install; the table says so"; \
	done
	@touch $@
