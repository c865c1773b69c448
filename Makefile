# make run | test | ui | lint | lock | clean
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv

.PHONY: run test ui lint lock clean

$(VENV)/run.stamp: requirements.lock pyproject.toml
	test -x $(BIN)/python || python3.11 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r uv.lock.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/test.stamp: requirements-dev.lock $(VENV)/run.stamp
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock
	touch $@

run: $(VENV)/run.stamp
	$(BIN)/understudy run recipes/digits.yaml

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest

ui: $(VENV)/run.stamp
	$(BIN)/understudy ui

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Resolves anew; the locks hold hashes and no index's address.
lock: $(VENV)/test.stamp
	$(UV) pip compile --quiet --python 3.11 --generate-hashes --no-emit-index-url --all-extras pyproject.toml -o requirements-dev.lock
	$(UV) pip compile --quiet --python 3.11 --generate-hashes --no-emit-index-url pyproject.toml -c requirements-dev.lock -o requirements.lock

clean:
	rm -rf $(VENV) .understudy build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
