# The commands of the project. `make` alone lists them. Each installs what it needs first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PYTHON := .venv/bin/python
CARGO := cargo
# One set of features for whatever is built to be tested, so that no crate is built again and again.
TESTED := --workspace --all-features --locked
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

# Tools that build code run at build time in the same form for checks and for tests.
export CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG ?= $(or $(CARGO_PROFILE_DEV_DEBUG),line-tables-only)

# Arguments of `make run` and of pytest: make run ARGS="--listen 127.0.0.1:8000"
ARGS ?=

# The tests of programs wait more than they compute: two workers a core. Tests that are chosen by
# ARGS run in one process, unless ARGS says otherwise: make test-integration ARGS="-n 4 -k store"
WORKERS ?= $(shell n=$$(($$(nproc) * 2)); echo $$((n < 8 ? n : 8)))
PARALLEL = $(if $(strip $(ARGS)),,-n $(WORKERS) --dist loadgroup)

# `test` runs its steps in the order in which they stand, the quick ones first.
.NOTPARALLEL:

.PHONY: help
help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
		| awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: run
run: ## build Dwell and start its demonstration: 30,000 waiting clients at http://127.0.0.1:8080/
	$(CARGO) build --release --locked --bin dwell
	$(TARGET_DIR)/release/dwell demo $(ARGS)

.PHONY: test
test: ## everything that must pass: format, lints, unit, property, doc, fuzz and integration tests
test: install fmt-check clippy test-rust test-loom test-docs fuzz-smoke test-bench test-python test-javascript test-integration test-go

# A sample of what a client sees, for `check`.
SHORT := $(addprefix tests/test_,hit.py miss.py wait.py sharing.py several.py forward.py events.py \
	websocket.py publish.py stale.py reload.py start.py store_commands.py store_lines.py)

.PHONY: check
check: ## format, lints, unit tests and some integration tests: 3 minutes where all is built
check: install
	@scripts/step format $(MAKE) --silent fmt-check
	@scripts/step lints $(MAKE) --silent clippy
	@scripts/step unit $(CARGO) test $(TESTED) --quiet --lib --bins --test tidy --test structure
	@scripts/step programs $(CARGO) build $(TESTED) --quiet --bins
	@DWELL_BIN="$(abspath $(TARGET_DIR))/debug/dwell" scripts/step integration \
		$(PYTHON) -m pytest -q -n $(WORKERS) --dist loadgroup $(SHORT)

.PHONY: lint
lint: ## only the checks that run no code: format, clippy, Python, documentation
lint: install-rust install-python fmt-check clippy test-docs

.PHONY: fmt
fmt: install-rust install-python ## format every source
	$(CARGO) fmt --all
	$(PYTHON) -m ruff format --quiet tests bench bindings/python conformance
	$(PYTHON) -m ruff check --quiet --fix tests bench bindings/python conformance

.PHONY: bench
bench: install-rust ## measure side by side with the peers; the tables go to bench/results
	bench/requirements
	bench/run $(ARGS)

.PHONY: bench-edge
bench-edge: ## of that, the tables with the edge in them, 14 minutes
	$(MAKE) bench ARGS="--only answer --only unchanged --only memcached --only miss \
		--only waiting --only storm --only reload $(ARGS)"

.PHONY: bench-timers
bench-timers: install-rust ## measure the timers beside pingora-timeout's and tokio's, 3 minutes
	bench/run-timers $(ARGS)

.PHONY: bench-memcache
bench-memcache: python ## measure the memcached client beside its peers, 4 minutes
	@scripts/install-debian memcached=memcached strace=strace taskset=util-linux
	bench/run-memcache $(ARGS)

.PHONY: python
python: install-rust install-python ## build the Python package and install it into .venv
	VIRTUAL_ENV=$(abspath .venv) $(PYTHON) -m maturin develop --release --quiet --locked \
		--manifest-path bindings/python/Cargo.toml

.PHONY: test-python
test-python: install-debian install-rust install-python install-autobahn ## the Python package: tests, stubs, types
	$(PYTHON) -m pip install --quiet --disable-pip-version-check \
		-r bindings/python/tests/requirements.txt
	VIRTUAL_ENV=$(abspath .venv) $(PYTHON) -m maturin develop --quiet --locked \
		--manifest-path bindings/python/Cargo.toml
	cd bindings/python && DWELL_AUTOBAHN="$(abspath $(TARGET_DIR))/autobahn" \
		$(abspath $(PYTHON)) -m pytest -q $(PARALLEL) $(ARGS)

.PHONY: test-sdist
test-sdist: install-rust install-python ## install the source distribution of the Python package, 5 minutes
	rm -rf "$(TARGET_DIR)/sdist"
	$(PYTHON) -m maturin sdist --manifest-path bindings/python/Cargo.toml \
		--out "$(TARGET_DIR)/sdist"
	python3 -m venv "$(TARGET_DIR)/sdist/venv"
	"$(TARGET_DIR)/sdist/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		"$(TARGET_DIR)"/sdist/*.tar.gz
	cd "$(TARGET_DIR)/sdist" && venv/bin/python -m dwell --version

.PHONY: test-javascript
test-javascript: test-programs install-clients ## dwell.js: its types, and Node against the server
	cd clients/javascript && npm run --silent types
	cd clients/javascript && DWELL_BIN="$(abspath $(TARGET_DIR))/debug/dwell" npm run --silent test

.PHONY: bench-python
bench-python: python ## measure the Python package beside its peers, 6 minutes
	@scripts/install-debian wrk=wrk taskset=util-linux
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r bench/requirements-python.txt
	$(PYTHON) bench/run-python $(ARGS)

.PHONY: conformance
conformance: python ## count what Autobahn, h2spec, memccapable, memcached and its clients find, 15 minutes or more
	@scripts/install-debian memcached=memcached memccapable=libmemcached-tools ruby=ruby \
		taskset=util-linux
	@ruby -e 'require "dalli"' 2>/dev/null || scripts/install-debian dalli-is-missing=ruby-dalli
	tests/autobahn/install $(TARGET_DIR)/autobahn
	tests/h2spec/install $(TARGET_DIR)/h2spec
	$(CARGO) build --locked --release --bin dwell
	$(CARGO) build --locked --release -p dwell-engine --example hello --example h2c \
		--example websocket_echo
	$(PYTHON) bench/run-conformance $(ARGS)

.PHONY: conformance-tls
conformance-tls: test-programs install-python ## what tlslite-ng, GnuTLS, sslyze and testssl.sh find, 4 minutes
	@scripts/install-debian gnutls-cli=gnutls-bin testssl=testssl.sh
	$(PYTHON) -m pip install --quiet --disable-pip-version-check sslyze==6.3.1
	DWELL_BIN="$(abspath $(TARGET_DIR))/debug/dwell" DWELL_LONG=1 $(PYTHON) -m pytest -q \
		tests/test_tls_records.py tests/test_tls_tools.py $(ARGS)

.PHONY: conformance-h2
conformance-h2: test-programs install-python ## every case of h2spec, strict, with and without TLS; needs Go
	tests/h2spec/install $(TARGET_DIR)/h2spec
	DWELL_BIN="$(abspath $(TARGET_DIR))/debug/dwell" \
		DWELL_H2C="$(abspath $(TARGET_DIR))/debug/examples/h2c" \
		DWELL_H2SPEC="$(abspath $(TARGET_DIR))/h2spec/h2spec" $(PYTHON) -m pytest -q \
		tests/test_h2spec.py $(ARGS)

.PHONY: targets
targets: ## print every target figure with its newest measured value and whether it holds
	@bench/targets

.PHONY: docs
docs: install-rust ## build the Rust documentation into target/doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

.PHONY: test-loom
# Apart from the other builds: the flag reaches every dependency.
test-loom: install-rust ## the shared timer in every order that the memory model allows
	RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		$(CARGO) test --locked --release -p dwell-timers --test loom \
		--target-dir $(TARGET_DIR)/loom

# Not part of `test`, as both need a nightly toolchain. A sweeper that still runs at the end of a
# test is no leak.
NIGHTLY := nightly

.PHONY: test-miri
test-miri: install-rust ## timers and memory of the store under Miri, for undefined behaviour; a nightly
	@$(CARGO) +$(NIGHTLY) miri --version >/dev/null 2>&1 \
		|| rustup toolchain install $(NIGHTLY) --profile minimal --component miri,rust-src
	MIRIFLAGS="-Zmiri-ignore-leaks" $(CARGO) +$(NIGHTLY) miri test --locked -p dwell-timers \
		--target-dir $(TARGET_DIR)/miri --lib --test promises --test threads --test stress \
		-- --skip stopped_and_continued
	MIRIFLAGS="-Zmiri-many-seeds=0..8" $(CARGO) +$(NIGHTLY) miri test --locked -p dwell-store \
		--target-dir $(TARGET_DIR)/miri --lib -- arena::tests::a_run arena::tests::readers \
		arena::tests::runs_of arena::tests::units

.PHONY: test-tsan
test-tsan: install-rust ## the threads of the timers under ThreadSanitizer; installs a nightly
	@test -d "$$(rustc +$(NIGHTLY) --print sysroot)/lib/rustlib/src/rust" \
		|| rustup toolchain install $(NIGHTLY) --profile minimal --component rust-src
	RUSTFLAGS="-Zsanitizer=thread" $(CARGO) +$(NIGHTLY) test --locked -p dwell-timers \
		-Zbuild-std --target $(HOST) --target-dir $(TARGET_DIR)/tsan \
		--lib --test promises --test threads --test stress --test executors

.PHONY: fuzz-smoke
fuzz-smoke: install-rust ## a short run of every fuzz target
	fuzz/smoke.sh

.PHONY: autobahn
autobahn: install-rust ## every case of the Autobahn WebSocket test suite, 10 minutes or more; needs CPython 2.7
	tests/autobahn/install $(TARGET_DIR)/autobahn
	$(CARGO) build --locked --release -p dwell-engine --example websocket_echo
	python3 tests/autobahn/run.py --suite $(TARGET_DIR)/autobahn \
		--echo $(TARGET_DIR)/release/examples/websocket_echo --reports $(TARGET_DIR)/autobahn/reports

.PHONY: go
go: install-rust install-go ## build the library for the Go package, and the package
	bindings/go/build-library $(abspath $(TARGET_DIR))
	cd bindings/go && go build ./...

.PHONY: test-go
# Go remembers results by its own sources, and not by the library that they are linked with.
test-go: install-rust install-go ## the Go package under the race detector, and with other people's frameworks
	bindings/go/build-library $(abspath $(TARGET_DIR)) tested
	cd bindings/go && test -z "$$(gofmt -l .)" && go vet ./... && CGO_ENABLED=0 go vet ./...
	cd bindings/go && go test -count=1 -race -timeout 400s ./...
	cd bindings/go/interop && go vet ./... && go test -count=1 -timeout 300s ./...

.PHONY: go-conformance
go-conformance: go ## the server tests of Go's own net/http against the Go package, 3 minutes
	python3 bindings/go/conformance/run.py --place $(abspath $(TARGET_DIR))/go-conformance \
		--results bench/results

.PHONY: bench-go
bench-go: go ## the Go package beside net/http and nbio: CPU, memory and goroutines
	@scripts/install-debian wrk=wrk taskset=util-linux
	bench/run-go $(ARGS)

.PHONY: header
header: install-rust ## write dwell.h again
	DWELL_WRITE_HEADER=1 $(CARGO) test --locked -p dwell-capi --test header

.PHONY: book
book: ## the documentation as a book under book/; installs mdbook (5 minutes)
	@command -v mdbook >/dev/null || $(CARGO) install mdbook --locked --version 0.5.4 \
		--no-default-features --features search
	mdbook build

# One script for each kind of artefact; `program` is first, as the others are made from it.
ARTEFACTS := program aarch64 packages image chart wheel c go crates javascript

.PHONY: dist
dist: install-rust ## make every artefact of a release in target/dist, 30 minutes or more; publishes nothing
	dist/tools
	@for artefact in $(ARTEFACTS); do echo "dist/$$artefact"; dist/$$artefact; done
	dist/sums

.PHONY: test-dist
test-dist: ## install each artefact of `make dist` where it belongs, and poll it, 10 minutes or more
	@for artefact in $(ARTEFACTS); do echo "dist/tests/$$artefact"; dist/tests/$$artefact; done
	@echo "every artefact was installed and polled"

.PHONY: test-reproducible
test-reproducible: ## after `make dist`: build a clone in another folder, and compare the bytes, 30 minutes
	dist/tests/reproducible $(ARTEFACTS)

.PHONY: chaos
chaos: install ## everything fails in turn, 15 minutes on each kind of store: nothing is lost, nothing grows
	$(CARGO) build --locked --release --bin dwell
	DWELL_BIN="$(abspath $(TARGET_DIR))/release/dwell" DWELL_SOAK_SECONDS=900 \
		$(PYTHON) -m pytest tests/test_chaos.py $(ARGS)

# Seeds of `make sim`, and the one that `make sim SEED=17` shows with all its events.
SEEDS ?= 1000
FROM ?= 0
SEED ?=

.PHONY: sim
sim: install-rust ## play SEEDS=1000 seeds of the whole edge on a simulated network, or show SEED=17
	$(CARGO) build --quiet --locked --profile sim -p dwell-sim --features sim
	$(TARGET_DIR)/sim/dwell-sim $(if $(SEED),--seed $(SEED),--from $(FROM) --seeds $(SEEDS))

# Minutes of `make soak`. It begins with seeds that no run before has played, or with those of FROM.
MINUTES ?= 240

.PHONY: soak
soak: FROM = $(shell date +%s)000
soak: install-rust ## play new seeds for MINUTES=240, and show their number each minute
	$(CARGO) build --quiet --locked --profile sim -p dwell-sim --features sim
	$(TARGET_DIR)/sim/dwell-sim --minutes $(MINUTES) --from $(FROM)

.PHONY: sim-planted
sim-planted: install-rust ## count the seeds that find each planted bug
	$(CARGO) build --quiet --locked --profile sim -p dwell-sim --features sim
	$(TARGET_DIR)/sim/dwell-sim --planted 10000

.PHONY: deny
deny: ## licences, duplicates and sources of the dependencies; installs cargo-deny (5 minutes)
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked --version 0.20.2
	$(CARGO) deny check licenses bans sources

.PHONY: install
install: install-debian install-rust install-python install-clients ## install what the tests need, where missing

# The steps of the commands above.

.PHONY: install-debian install-rust install-python install-clients install-go
install-debian:
	@scripts/install-debian c++=g++ chromium=chromium curl=curl \
		faketime=faketime h2load=nghttp2-client haproxy=haproxy memcached=memcached \
		memccapable=libmemcached-tools nginx=nginx promtool=prometheus \
		redis-server=redis-server strace=strace valgrind=valgrind

install-rust:
	@scripts/install-rust

install-python: .venv/installed

install-clients:
	@scripts/install-clients

install-go:
	@scripts/install-go

.venv/installed: tests/requirements.txt
	@scripts/install-python .venv tests/requirements.txt
	@touch $@

# Where there is no CPython 2.7 the test that needs it says that it was skipped.
.PHONY: install-autobahn
install-autobahn:
	@tests/autobahn/install $(TARGET_DIR)/autobahn || test $$? -eq 3

# Where there is no Go the test that needs it says that it was skipped.
.PHONY: install-h2spec
install-h2spec:
	@tests/h2spec/install $(TARGET_DIR)/h2spec || test $$? -eq 3

.PHONY: fmt-check clippy test-rust test-programs test-docs test-bench test-integration
fmt-check:
	$(CARGO) fmt --all --check
	$(PYTHON) -m ruff format --check --quiet tests bench bindings/python conformance
	$(PYTHON) -m ruff check --quiet tests bench bindings/python conformance

clippy:
	$(CARGO) clippy $(TESTED) --all-targets -- -D warnings
	$(CARGO) clippy -p dwell -p dwell-engine -p dwell-memcache --all-targets --locked -- -D warnings
	$(CARGO) clippy -p dwell-engine --locked -- -D warnings

test-rust:
	$(CARGO) test $(TESTED)

# The programs that other tests start, of the crates that `test-rust` has built.
test-programs: install-rust
	$(CARGO) build $(TESTED) --quiet --bins --example hello --example h2c \
		--example websocket_echo

# The pages are read without the program, which the other tests of the folder need.
test-docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	$(PYTHON) -m pytest -q --noconftest tests/test_prose.py -k "page or source"

test-bench:
	$(PYTHON) -m pytest bench

test-integration: install-autobahn install-h2spec test-programs
	DWELL_BIN="$(abspath $(TARGET_DIR))/debug/dwell" \
		DWELL_ECHO="$(abspath $(TARGET_DIR))/debug/examples/websocket_echo" \
		DWELL_HELLO="$(abspath $(TARGET_DIR))/debug/examples/hello" \
		DWELL_H2C="$(abspath $(TARGET_DIR))/debug/examples/h2c" \
		DWELL_H2SPEC="$(abspath $(TARGET_DIR))/h2spec/h2spec" \
		DWELL_AUTOBAHN="$(abspath $(TARGET_DIR))/autobahn" $(PYTHON) -m pytest tests \
		$(PARALLEL) $(ARGS)
