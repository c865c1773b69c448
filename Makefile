# make install | run | check | test | test-every | test-full | test-kills | test-cluster | test-cluster-full | test-kfp | images | release | dist | sbom | manifests | docs | ui | lint | lock | clean
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
INSTALL := $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python
COMPILE := $(UV) pip compile --quiet --python 3.11 --generate-hashes --no-emit-index-url

# The first of these that is Python 3.11 and can make environments; looked for only when one is to be made.
FIND_PYTHON := for name in python3.11 python3 python; do \
	$$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && break; name=; done

.PHONY: install run check test test-every test-full test-kills test-cluster test-cluster-full test-kfp images release dist sbom manifests docs ui lint lock clean

$(UV): requirements-uv.lock
	@$(FIND_PYTHON); test "$$name" || { echo "make: this needs Python 3.11 with its venv module" >&2; exit 1; }; \
	test -x $(BIN)/pip || $$name -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-uv.lock
	touch $@

$(VENV)/run.stamp: requirements.lock pyproject.toml $(UV)
	@echo "installing into $(VENV); the first time this downloads about 3.3 GB, without a word for some minutes"
	$(INSTALL) --require-hashes -r requirements.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/test.stamp: requirements-dev.lock server/pyproject.toml $(VENV)/run.stamp
	$(INSTALL) --require-hashes -r requirements-dev.lock
	$(INSTALL) --no-deps --no-build-isolation --editable server
	touch $@

install: $(VENV)/run.stamp

run: $(VENV)/run.stamp
	$(BIN)/understudy run recipes/pydoc.yaml

# How many test processes. Tests that need ranks run in one of them, which has a pool of four: 3 GB of memory.
JOBS ?= 2
SELECTION := $(BIN)/python -m tests.selection --jobs $(JOBS)

# The unit tests, and those of ranks, registry and server that a change reaches since they passed (CONTRIBUTING.md).
test: $(VENV)/test.stamp
	$(SELECTION) unit ranks registry server

# Lint, and of all tests without a cluster only those that a change reaches.
check: lint
	$(SELECTION) --changed unit ranks registry server

# All tests that need no cluster but the rows marked full, reached or not.
test-every: $(VENV)/test.stamp
	$(SELECTION) --every unit ranks registry server

# All of them, whole: matrices, kills, outages, long searches. An hour on two cores.
test-full: $(VENV)/test.stamp
	UNDERSTUDY_HYPOTHESIS=full $(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "not cluster" tests

# Five rounds of kills for one of test-full, under ddp and hsdp, too: an hour on two cores.
test-kills: $(VENV)/test.stamp
	UNDERSTUDY_KILLS=5 $(BIN)/python -m pytest tests/full/test_kills.py -m ""

# On the cluster that KUBECONFIG names, whose nodes hold this checkout in the image UNDERSTUDY_TEST_IMAGE.
test-cluster: $(VENV)/test.stamp
	PATH="$(CURDIR)/$(BIN):$$PATH" $(SELECTION) $(EVERY) cluster

# What takes a node or the API server away needs a command for it: UNDERSTUDY_TEST_OUTAGES, with `stop NAME`, `start NAME`.
test-cluster-full: $(VENV)/test.stamp
	UNDERSTUDY_TEST_OUTAGES="$${UNDERSTUDY_TEST_OUTAGES:-$(wildcard ../shared/cluster/cluster)}" \
		PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest tests/cluster -m cluster

# The walk of docs/operating/kfp.md on the KFP server that KFP_HOST names (KFP_UI its pages), in the cluster of KUBECONFIG.
test-kfp: $(VENV)/test.stamp
	PATH="$(CURDIR)/$(BIN):$$PATH" $(SELECTION) $(EVERY) kfp

# The example recipes as objects of Kubeflow Pipelines.
manifests: $(VENV)/run.stamp
	rm -rf build/pipelines
	set -e; for recipe in recipes/*.yaml; do name=$$(basename $$recipe .yaml); \
		$(BIN)/understudy compile $$recipe --images registry.example.com/ml/understudy:0.1.0 -o build/pipelines; \
		cp build/pipelines/$$name.kubernetes.yaml manifests/pipelines/$$name.yaml; done

# IMAGES=PREFIX:TAG names them PREFIX-launcher:TAG and so on; BASE is an image with Python 3.11 and pip.
IMAGES ?= understudy:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
BASE ?= python:3.11-slim-bookworm
BUILD ?= $(shell command -v buildah >/dev/null && echo "buildah build --isolation chroot --network host" || echo "docker build")
WHICH ?= launcher trainer mlflow
images:
	set -e; images="$(IMAGES)"; for name in $(WHICH); do \
		$(BUILD) --build-arg BASE="$(BASE)" --build-arg VERSION="$${images##*:}" \
			--build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
			-f images/$$name/Dockerfile -t "$${images%:*}-$$name:$${images##*:}" .; \
	done

# Pushes them, and prints them by digest as an environment's settings want them.
release:
	images/release.sh "$(IMAGES)" $(WHICH)

# The sdists of understudy and understudy-server, and the wheels built from them, in dist/. The same commit gives the same bytes.
dist: $(VENV)/test.stamp
	rm -rf dist
	for source in . server; do SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		$(UV) build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist $$source || exit 1; done
	$(BIN)/twine check --strict dist/*

# A software bill of materials per image (CycloneDX) of the libraries in its lock, with their hashes.
sbom:
	mkdir -p build/sbom
	set -e; images="$(IMAGES)"; $(FIND_PYTHON); for image in $(WHICH); do \
		lock=images/$$image/requirements.lock; test -e $$lock || lock=requirements.lock; \
		$$name images/sbom.py $$lock "$${images%:*}-$$image" "$${images##*:}" > build/sbom/$$image.cdx.json; done

# The documentation as a site, in build/site; a dead link fails. Its libraries have an environment of their own.
docs: requirements-docs.lock $(UV)
	test -x $(VENV)-docs/bin/python || $(UV) venv --quiet --python $(BIN)/python $(VENV)-docs
	$(UV) pip install --quiet --python $(VENV)-docs/bin/python --require-hashes -r requirements-docs.lock
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict

ui: $(VENV)/run.stamp
	$(BIN)/understudy ui

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Resolves anew; the locks hold hashes and no index's address.
lock: $(VENV)/test.stamp
	$(COMPILE) --all-extras pyproject.toml -o requirements-dev.lock
	$(COMPILE) pyproject.toml -c requirements-dev.lock -o requirements.lock
	echo uv | $(COMPILE) - -c requirements-dev.lock -o requirements-uv.lock
	echo mkdocs-material | $(COMPILE) - -o requirements-docs.lock
	for name in launcher mlflow; do \
		$(COMPILE) images/$$name/requirements.in -c requirements.lock -o images/$$name/requirements.lock; done

# Takes the store and the local registry along.
clean:
	rm -rf $(VENV) $(VENV)-docs .understudy build dist *.egg-info src/*.egg-info server/src/*.egg-info server/build .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
