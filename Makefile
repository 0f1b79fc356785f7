# make demo: the main job with its faults, on a real cluster, as a timeline.  make test: every test.
# Both need nothing but a Debian or Ubuntu machine and root, and build what is missing.

PY := .venv/bin/python
# Two cores: more workers would only make every deadline tighter.
WORKERS ?= 2
# Clusters beside each other: their tests wait for Slurm most of the time.
CLUSTERS ?= 4
# Whatever is said of Python outside must not reach the tests.
unexport PYTHONPATH PYTHONHOME

# Steps of the model: a million in eight parts, drawn by SEED. MODEL_LOG=FILE gets a line now and then.
MODEL_STEPS ?= 1000000
# Power losses of a second kernel.
CYCLES ?= 50

.PHONY: help demo test test-fast test-savers test-cluster savers nightly power trials bench lint venv venv-savers \
    engine kernel nfs down clean

help:
	@echo "make demo          the main job with its faults, as a timeline"
	@echo "make test          lint, test-fast, test-savers and test-cluster"
	@echo "make test-fast     the tests that need no cluster"
	@echo "make test-savers   real saves of the real libraries, killed at the edges of their files: a sample"
	@echo "make test-cluster  the tests on real clusters, $(CLUSTERS) beside each other"
	@echo "make savers        the same with every program, at every call"
	@echo "make nightly       $(MODEL_STEPS) steps of the model, each fault that it must find, and orders of removing"
	@echo "make power         $(CYCLES) power losses of a second kernel, and the table of what was there after them"
	@echo "make nfs           the store on a real NFS with each option of its clients, and the table of what is seen when"
	@echo "make trials        make savers, then 40 trials of each design, and with the real Trainer, and their tables"
	@echo "make bench         the table of speeds"
	@echo "make lint          ruff, mypy, import-linter, shellcheck"
	@echo "make down          remove the clusters of this checkout"

venv:
	@tools/make-venv

# The training libraries, for the tests that run them.
venv-savers:
	@tools/make-venv-savers

engine:
	@docker/ensure-engine

# A second kernel, whose power can be taken away, and what an NFS server in it takes: nothing of that is installed here.
kernel:
	@command -v linux.uml >/dev/null || tools/ensure-host user-mode-linux
	@tools/ensure-host --unpack .make/nfs nfs-kernel-server nfs-common kmod
	@test -x /sbin/mkfs.ext4 || tools/ensure-host e2fsprogs

demo: venv engine
	@$(PY) -m demo

test: lint test-fast test-savers test-cluster

test-fast: venv kernel
	@command -v strace >/dev/null || tools/ensure-host strace
	$(PY) -m pytest -q -n $(WORKERS) --dist loadfile -m "not cluster and not savers and (not nfs or sample)"

test-savers: venv venv-savers
	@command -v strace >/dev/null || tools/ensure-host strace
	$(PY) -m pytest -q -n $(WORKERS) --dist load -m "savers and sample and not cluster" tests/savers tests/integrations

test-cluster: venv venv-savers engine
	@docker/base trixie
	@docker/base bookworm
	@tools/fetch-s3
	$(PY) -m pytest -q -n $(CLUSTERS) --dist loadfile --no-loadscope-reorder -m "cluster and (not savers or sample)"

savers: venv
	@command -v strace >/dev/null || tools/ensure-host strace
	@tools/make-venv-savers more
	$(PY) -m pytest -q -n $(WORKERS) --dist load -m "savers and not cluster" -rP --durations=20 \
	    tests/savers tests/integrations

nightly: venv
	MODEL_STEPS=$(MODEL_STEPS) $(PY) -m pytest -q -n $(WORKERS) --dist worksteal -rP \
	    tests/controller/test_model.py tests/controller/test_mutants.py
	DISPATCH_GC_EXAMPLES=20000 $(PY) -m pytest -q -n $(WORKERS) tests/store/test_gc_model.py tests/s3/test_model.py

power: venv kernel
	@$(PY) -m tests.power --cycles $(CYCLES)

nfs: venv kernel
	$(PY) -m pytest -q -m nfs tests/nfs
	@$(PY) -m tests.nfs

trials: venv savers engine
	@$(PY) -m tests.trials
	@$(PY) -m tests.trials.transformers_table

bench: venv engine
	@$(PY) -m bench

lint: venv
	@command -v shellcheck >/dev/null || tools/ensure-host shellcheck
	@.venv/bin/ruff check --quiet .
	@test ! -d hooks/python || .venv/bin/ruff check --quiet --config tools/ruff-hooks.toml hooks/python
	@.venv/bin/mypy --no-error-summary
	@mkdir -p .make
	@.venv/bin/lint-imports >.make/imports 2>&1 || { cat .make/imports; exit 1; }
	@grep -rlE '^#!(/usr)?/bin/(env )?(ba|da)?sh|^# shellcheck shell=sh' --exclude-dir=.git --exclude-dir='.venv*' --exclude-dir=.make \
	    --exclude-dir=clusters --exclude='*.md' . | xargs shellcheck -x -P SCRIPTDIR
	@echo "lint: clean"

down:
	@docker/cluster down all

clean: down
	@rm -rf .venv .venv-savers .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .make dist
