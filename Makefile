# Two commands do all the set-up on a fresh machine: `make quickstart` and `make test`.
# A fresh machine has Rust 1.95, gcc, Python 3 and apt; everything else is installed here.

CARGO ?= cargo
VENV := $(CURDIR)/.venv
HOLDFAST := $(CURDIR)/target/release/holdfast

.PHONY: help quickstart soak test fmt test-units test-e2e build deps check fix clean

help:
	@echo "make quickstart   install what it needs, build, run a cluster, fio, S3 and a ceiling report (KEEP=1 keeps it running)"
	@echo "make test         formatting, unit tests, model tests and end-to-end tests"
	@echo "make check        formatting and lints, looks only;  make fix edits"

deps:
	@scripts/deps.sh $(VENV)

build:
	$(CARGO) build --release --locked -p holdfast -p faultdisk

quickstart: deps build
	@HOLDFAST=$(HOLDFAST) VENV=$(VENV) scripts/quickstart.sh

test: fmt test-units test-e2e

fmt:
	$(CARGO) fmt --all --check

soak: deps build
	@HOLDFAST=$(HOLDFAST) PYTHON=$(VENV)/bin/python scripts/soak.sh

# The simulation takes more than a second of CPU a seed in this profile; HOLDFAST_SIM_SEEDS=40 runs fewer than all 500.
test-units:
	$(CARGO) test --workspace --locked --no-fail-fast

test-e2e: deps build
	HOLDFAST=$(HOLDFAST) FAULTDISK=$(CURDIR)/target/release/faultdisk $(VENV)/bin/python -m pytest tests/e2e -q

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

fix:
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty
	$(CARGO) fmt

clean:
	$(CARGO) clean
	rm -rf $(VENV)
