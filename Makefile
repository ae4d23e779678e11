# The targets are the whole interface of a checkout; README.md says which two to begin with.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test told setup base check fmt e2e bench docs fuzz soak azurite test-levels test-cluster bench-cluster manifest clean

run: setup base
	$(BIN)/python tools/quickstart.py

# Two files at a time; with more, tests that measure time disturb each other.
TESTERS ?= 2
test: told setup base
	$(BIN)/python -m pytest -m "not slow" -n $(TESTERS) --dist loadfile $(PYTEST_ARGS)

told:
	@[ "$$(id -u)" = 0 ] || echo "make: not root: sandboxes are of level bwrap, and tests of what needs root are skipped" >&2

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	bash tools/setup.sh $(PYTHON) $(VENV)
	touch $(STAMP)

base: setup
	$(BIN)/atoll image build-base

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/unasync.py --check
	$(BIN)/python tools/check_size.py
	$(BIN)/python tools/check_mirror.py
	$(BIN)/python tools/docs_reference.py --check

fmt: setup
	$(BIN)/python tools/unasync.py
	$(BIN)/python tools/docs_reference.py
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

e2e: setup base
	$(BIN)/python -m pytest tests/e2e tests/security $(PYTEST_ARGS)

bench: setup base
	$(BIN)/python -m bench

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fuzz: setup
	ATOLL_FUZZ_EXAMPLES=20000 $(BIN)/python -m pytest tests/fuzz -m "slow or not slow" --timeout 3600 $(PYTEST_ARGS)

soak: setup base azurite
	$(BIN)/python -m pytest -m "slow or not slow" --all-clients --timeout 3600 $(PYTEST_ARGS)

# A server of Azure's protocol for the long tests; it needs npm, and they are skipped without it.
azurite: setup
	@[ -d $(VENV)/azurite ] || ! command -v npm >/dev/null || npm install --silent --no-audit \
	--no-fund --prefix $(VENV)/azurite azurite@3.35.0

test-levels: setup base
	$(BIN)/python -m pytest tests/conformance tests/security --all-clients --timeout 600 $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests/conformance --level bwrap --timeout 600 $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests/conformance --level gvisor --timeout 600 $(PYTEST_ARGS)

# KUBECONFIG=... names a cluster, and ENGINE_IMAGE= the engine's image that its nodes can pull;
# else KIT, a script with the verbs up, load and down, makes a cluster here.
KIT ?= $(wildcard ../shared/cluster/cluster.sh)
ON_CLUSTER = $(BIN)/python -m tools.test_cluster --kubeconfig "$(KUBECONFIG)" --kit "$(KIT)" \
	--engine-image "$(ENGINE_IMAGE)"
test-cluster: setup base
	$(ON_CLUSTER) $(PYTEST_ARGS)

bench-cluster: setup base
	$(ON_CLUSTER) --bench

manifest: setup
	$(BIN)/python -m tools.render_chart

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis site
