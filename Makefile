# kvreport: the one door. `make site` builds the site, `make test` tests everything; both start from a
# fresh clone with nothing but Python 3.11+, make and a package registry. `make help` lists the rest.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV   := .venv
BIN    := $(VENV)/bin
# What the site needs, and what tests and checks need in addition.
SITE_STAMP := $(VENV)/.installed-site
STAMP      := $(VENV)/.installed
# Files are UTF-8 whatever the machine's locale says.
export PYTHONUTF8 := 1
# Several hundred processes of the tests and a build's workers would each compile the package and its libraries again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The theme announces at every build what becomes of the engine under it; docs/adr/0001 has our answer.
export NO_MKDOCS_2_WARNING := 1

# What may be said on the command line, as in `make test PYTEST_ARGS="-k budget"`.
PYTHON      ?=
PYTEST_ARGS ?= -q -n auto --dist loadfile --no-loadscope-reorder
PORT        ?= 8000
OUT         ?= build/export
UV          ?= uv
FUZZ        ?= 50
INPUTS      ?= 1000000

.PHONY: help follow sync released-address variation kills trials site serve test nightly faults coverage fuzz audit torch-check llama-check mlx-check check format bench export fit wheel release lock venv clean distclean

help: ## list what can be made
	@printf 'make ...\n'
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 15

site: $(SITE_STAMP) ## build the whole site into site/: catalog, dataset, pages, charts, chapters, downloads
	@$(BIN)/python scripts/fetch_runtime.py && \
		$(BIN)/mkdocs build --strict

serve: site ## build the site and serve it on this machine (PORT=8000)
	@echo "http://127.0.0.1:$(PORT)/  (Ctrl-C ends it)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(PORT)

# What a commit is held against. `-m` on the command line of PYTEST_ARGS takes the place of this one.
test: $(STAMP) ## run the tests of every commit, with a real browser (PYTEST_ARGS="-k name" for some)
	@$(call pytest,-m "not nightly" $(PYTEST_ARGS))

# The rest, before a release and by a clock: tests/nightly.yaml names the tests and why each group is long. Every step
# runs, whatever the one before it found, and the steps that failed are named at the end.
NIGHTLY_INPUTS ?= 200000
NIGHTLY_KILLS  ?= 20
nightly: $(STAMP) ## run what is too long for every commit: whole site, builds after changes, exports, kills, random inputs
	@failed=; \
	step() { echo "· $$1"; shift; "$$@" || failed="$$failed $$*"$$'\n'; }; \
	tests() { $(call pytest,-m nightly $(PYTEST_ARGS)); }; \
	step 'tests of tests/nightly.yaml' tests; \
	step 'drawn and thinned tests in full' env KVREPORT_FUZZ=2 $(FUZZED); \
	step '$(NIGHTLY_INPUTS) random inputs' $(BIN)/python scripts/fuzz.py --inputs $(NIGHTLY_INPUTS); \
	step '$(NIGHTLY_KILLS) builds and matrix runs killed' $(BIN)/python scripts/kills.py $(NIGHTLY_KILLS); \
	step 'byte-identical builds elsewhere' $(BIN)/python scripts/variation.py; \
	if [ -n "$$failed" ]; then printf 'failed:\n%s' "$$failed" >&2; exit 1; fi

# Coverage is asked once which tests execute which lines; then each fault is put into a copy of the tree, and those tests run.
FAULTS ?=
faults: $(STAMP) ## seed the fifty faults of tests/seeded_faults.yaml one by one; at least 48 must be noticed (FAULTS="--only ID")
	@chromium="$$($(BIN)/python tests/ensure_chromium.py)" && \
		KVREPORT_CHROMIUM="$$chromium" $(BIN)/python scripts/seeded_faults.py $(FAULTS)

define pytest
$(BIN)/python scripts/fetch_runtime.py && \
	chromium="$$($(BIN)/python tests/ensure_chromium.py)" && \
	KVREPORT_CHROMIUM="$$chromium" $(BIN)/python -m pytest $(1)
endef

# Without a browser and without a whole site: what those reach is not what a unit test holds.
coverage: $(STAMP) ## measure what the fast tests reach of each room, and hold it against its floor
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow and not browser" tests/unit tests/property tests/component \
		--cov=kvreport --cov-branch --cov-report= --cov-report=json:.cache/coverage.json
	@$(BIN)/python scripts/coverage_floors.py .cache/coverage.json

FUZZED = $(BIN)/python -m pytest -q -n auto --timeout 0 $$(grep -rlE 'from (hypothesis|fuzzing)' tests --include='test_*.py')
# New examples each time, and twice FUZZ times as many as a build tries: run it after touching a reader of untrusted input. An input that breaks
# something is printed; it becomes an `@example` of the test that found it.
fuzz: $(STAMP) ## throw random input at config reader, catalog, command line, log reader and arithmetic
	@KVREPORT_FUZZ=$(FUZZ) $(FUZZED)

# The same targets without a test around them: seeds from SEED on, no shrinking, one process.
SEED        ?= 0
trials: $(STAMP) ## give a million seeded inputs to every public interface and judge each answer (INPUTS=1000000 SEED=0)
	@$(BIN)/python scripts/fuzz.py --inputs $(INPUTS) --seed $(SEED)

# PyTorch and transformers are gigabytes, and comparing with new ones is the point: they are in no lock and
# have an environment of their own.
TORCH_VENV ?= .venv-torch
# The build for processors: the plain one brings gigabytes of CUDA on Linux, and nothing here needs a GPU.
TORCH      ?= torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
CONFIGS    ?=
JOBS       ?= 2
# Finished classes are kept in .cache/class_check.jsonl, so that a stopped run goes on where it was: remove the file
# to check every class again.
torch-check: $(STAMP) ## compare our counts with real tensors of transformers (CONFIGS="a/config.json ..." for other models)
	@[ -x $(TORCH_VENV)/bin/python ] || $(BIN)/python -m venv $(TORCH_VENV)
	@$(TORCH_VENV)/bin/python -m pip install --quiet '$(TORCH)' -e '.[torch-check]' || { \
		echo "torch-check: no $(TORCH) in your registries. Name PyTorch's index of CPU builds in PIP_EXTRA_INDEX_URL," >&2; \
		echo "or take the build with CUDA: make torch-check TORCH=torch" >&2; exit 1; }
	@$(TORCH_VENV)/bin/python -m experiments check $(CONFIGS)
	@[ -n "$(CONFIGS)" ] || $(TORCH_VENV)/bin/python -W ignore -m experiments classes --out data/class_check.yaml \
		--journal .cache/class_check.jsonl --jobs $(JOBS)
	@[ -n "$(CONFIGS)" ] || $(TORCH_VENV)/bin/python -W ignore -m experiments pooling

# llama.cpp is built from the package's source for the processor, which takes about ten minutes once.
LLAMA_VENV ?= .venv-llama
llama-check: $(STAMP) ## compare our buffers with what the real llama.cpp plans for every architecture (ONLY="llama qwen3")
	@[ -x $(LLAMA_VENV)/bin/python ] || $(BIN)/python -m venv $(LLAMA_VENV)
	@$(LLAMA_VENV)/bin/python -m pip install --quiet -e . 'llama-cpp-python==0.3.36'
	@$(LLAMA_VENV)/bin/python -m experiments llama-check $(ONLY) $(if $(ONLY),,--out data/llama_cpp/check.yaml)

MLX_VENV ?= .venv-mlx
mlx-check: $(STAMP) ## compare our bytes of weights and caches with mlx's own, on the processor
	@[ -x $(MLX_VENV)/bin/python ] || $(BIN)/python -m venv $(MLX_VENV)
	@$(MLX_VENV)/bin/python -m pip install --quiet -e . mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2
	@$(MLX_VENV)/bin/python -m experiments mlx-check --out data/llama_cpp/mlx_check.yaml

# The tool is in no lock and has an environment of its own. It asks a database of known vulnerabilities, so it
# needs the network and its answer changes from day to day: no test depends on it. `--strict`, because without it
# a package that the database could not be asked about passes unseen. AUDIT_ARGS="-s osv" asks another database.
AUDIT_VENV ?= .venv-audit
AUDIT_ARGS ?=
audit: $(STAMP) ## ask for known vulnerabilities of every pinned package (needs the network)
	@[ -x $(AUDIT_VENV)/bin/pip-audit ] || { $(BIN)/python -m venv $(AUDIT_VENV) && \
		$(AUDIT_VENV)/bin/python -m pip install --quiet pip-audit; }
	@for lock in requirements/*.txt; do echo "· $$lock"; \
		$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r "$$lock" $(AUDIT_ARGS); done

check: $(STAMP) ## style, types and layers of Python and JavaScript, language and figures of pages, and the catalog, without running a test
	@failed=; \
	step() { echo "· $$*"; "$$@" || failed="$$failed  $$*"$$'\n'; }; \
	step $(BIN)/ruff format --check --quiet .; \
	step $(BIN)/ruff check --quiet .; \
	step $(BIN)/mypy --no-error-summary; \
	step $(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter; \
	step $(BIN)/python scripts/javascript.py; \
	step $(BIN)/python scripts/check_style.py; \
	step $(BIN)/python scripts/check_prose.py; \
	step $(BIN)/kvreport check; \
	if [ -n "$$failed" ]; then printf 'failed:\n%s' "$$failed" >&2; exit 1; fi

format: $(STAMP) ## lay out the sources and fix what has one right answer
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/python scripts/javascript.py --fix

BENCH_ARGS ?=
bench: $(STAMP) ## measure what this machine does, and hold it against the budgets (BENCH_ARGS="--only site" for a part)
	@chromium="$$($(BIN)/python tests/ensure_chromium.py)" && KVREPORT_CHROMIUM="$$chromium" $(BIN)/python -m bench $(BENCH_ARGS)

export: $(SITE_STAMP) ## write the site's pages as plain files (OUT=build/export)
	@$(BIN)/kvreport export --out $(OUT)

fit: $(STAMP) ## fit the engines' memory reserve on data/observations and write its coefficients
	@$(BIN)/python scripts/fit_reserve.py --write

variation: $(STAMP) ## build a site under other paths, zones, locales, clocks, users and Pythons; print its digest
	@$(BIN)/python scripts/variation.py

KILLS ?= 100
kills: $(STAMP) ## kill builds and matrix runs at random moments, and hold what is left against what must be there (KILLS=100)
	@$(BIN)/python scripts/kills.py $(KILLS)

wheel: $(SITE_STAMP) ## build the wheel, with the templates and the public data inside, into dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

released-address:
	@case "$${KVREPORT_SITE_URL:-}" in https://*) ;; *) echo 'release: KVREPORT_SITE_URL must be the https:// address that the site will have' >&2; exit 2;; esac

release: released-address $(STAMP) site ## build wheel, source archive and site archive with checksums and provenance into dist/
	@$(BIN)/python scripts/release.py

# --- the environment ---------------------------------------------------------------------------------
# Everything comes from a lock, by hash, as wheels: nothing unpinned is fetched and no stranger's
# set-up code runs. Then this package, editable, with the build backend that the lock brought.

venv: $(STAMP) ## make the environment .venv from the locks (PYTHON=python3.12 to choose)

# A Python that is named and is not the environment's makes the environment anew.
ifneq ($(PYTHON),)
VERSION_OF = $(shell $(1) -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null)
ifneq ($(call VERSION_OF,$(PYTHON)),$(call VERSION_OF,$(BIN)/python))
.PHONY: $(SITE_STAMP)
endif
endif

$(SITE_STAMP): requirements/site.txt pyproject.toml hatch_build.py Makefile
	@python=; \
	for candidate in $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
		if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
		then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo 'kvreport needs Python 3.11 or newer with its venv module, and $(if $(PYTHON),PYTHON=$(PYTHON) is not one,found none on PATH).' >&2; \
		echo 'Install one (on Debian or Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python3.12 ...' >&2; \
		exit 1; \
	fi; \
	want="$$("$$python" -c 'import sys; print(*sys.version_info[:2])')"; \
	have="$$($(BIN)/python -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null || true)"; \
	if [ -z "$$have" ] || { [ -n '$(PYTHON)' ] && [ "$$have" != "$$want" ]; }; then \
		echo "· making $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@$(call install,requirements/site.txt)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(STAMP): requirements/dev.txt $(SITE_STAMP)
	@$(call install,requirements/dev.txt)
	@touch $@

define install
echo "· installing from $(1)" && \
	$(BIN)/python -m pip install --quiet --require-hashes --no-compile --no-deps --only-binary :all: -r $(1)
endef

# `uv` writes the lock and nothing else; it is no part of the environment (`pip install uv` anywhere,
# then `make lock UV=/path/to/uv`). One resolution for every supported Python, so that the same numbers
# and the same pages come out on each; where one version cannot serve all, a marker says which gets which.
# Versions stay where they are unless pyproject.toml forbids them: `make lock LOCK_ARGS=--upgrade` moves
# them. No registry's address is written down: whoever installs uses theirs, and the hashes decide.
LOCK_ARGS ?=
# The package is downloaded without dependencies; its planner runs in .cache/engines, on no GPU. FOLLOW="--no-planner --write"
follow: $(STAMP) ## draft what a release of an engine changed: make follow ENGINE=vllm RELEASE=0.34.0
	@$(BIN)/python scripts/follow.py $(ENGINE) $(RELEASE) $(FOLLOW)

# Without a registry or git it says so and goes on with what it has. SYNC="--recipes FOLDER --configs FOLDER --write"
sync: $(STAMP) ## draft the records of new models, releases and recipes that need no judgment
	@$(BIN)/python scripts/sync.py $(SYNC)

lock: ## pin anew from pyproject.toml into requirements/ (needs uv)
	@command -v $(UV) >/dev/null || { echo 'make lock needs uv: install it, or say make lock UV=/path/to/uv' >&2; exit 1; }
	@compile() { \
		out="$$1"; shift; \
		$(UV) pip compile pyproject.toml "$$@" --universal --python-version 3.11 --fork-strategy fewest \
			--generate-hashes --no-emit-index-url --only-binary :all: --custom-compile-command 'make lock' \
			--quiet --output-file "$$out" $(LOCK_ARGS); \
		echo "· $$out: $$(grep -c '==' "$$out") packages"; \
	}; \
	compile requirements/runtime.txt --extra site; \
	compile requirements/dev.txt --extra site --group dev --constraint requirements/runtime.txt; \
	compile requirements/site.txt --extra site --group site --constraint requirements/dev.txt; \
	compile requirements/core.txt --group build --constraint requirements/dev.txt

clean: ## remove what was built, but for the environment and the caches
	@rm -rf site build dist

distclean: clean ## remove the environment and the caches too
	@rm -rf $(VENV) $(TORCH_VENV) $(AUDIT_VENV) .cache .hypothesis
