# Egret's daily commands; make/ has the others. `make` lists them. Each installs missing tools, and prints its steps with the time.

PEERS := .peers
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release/egret
QUICK_EGRET := $(TARGET)/quick/egret
DEBUG_EGRET := $(TARGET)/debug/egret
PROFILE := $(TARGET)/release.profdata
UI := crates/control/ui
PAGE := crates/control/src/page

# The crates are small, and the first build ends sooner without state for later ones.
export CARGO_INCREMENTAL := 0

# Debian's directories for daemons, which may be missing in a user's PATH.
export PATH := $(PATH):/usr/sbin:/sbin

# The cases of property tests are the same in each run: `make properties` draws new ones.
export PROPTEST_RNG_SEED ?= 1

export START := $(or $(START),$(shell date +%s))
say = printf '\n==> [%3d s] %s\n' $$(($$(date +%s) - $(START)))
# Another call of make, which `make --dry-run` only prints.
make = $(MAKE) --no-print-directory

.DEFAULT_GOAL := help
.NOTPARALLEL .DELETE_ON_ERROR:

help: ## List the daily commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

help-all: ## List the other commands, by group, with their settings
	@awk -F ':.*## ' 'FNR == 1 { printf "\n%s\n", substr($$0, 3) } /^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' make/*.mk

include make/peers.mk make/tests.mk make/lab.mk make/packages.mk

# The commands in the lists, and these, are no files.
.PHONY: built-tests earlier need-packages needs package-binaries profile test-peers $(shell awk -F : '/^[a-z0-9-]+:.*\043\043 / { print $$1 }' $(MAKEFILE_LIST))

run: debug ## Build Egret without optimization and start it with a provider to call
	@scripts/need curl && $(say) "$(DEBUG_EGRET) run --demo (Ctrl-C stops it)"
	@exec $(DEBUG_EGRET) run --demo

# Dependencies have other features in tests. With `--examples`, of which there are none, they have these here too, so `make test`, `doc`
# and the gates of CI compile none of it again. In a quick build that holds for the same packages.
QUICK_BUILD := --locked --profile quick --package egret --package egret-store --package egret-benches
debug: ## Build Egret without optimization, in target/debug
	@scripts/need cc
	@$(say) "Building $(DEBUG_EGRET): three to five minutes the first time. It is slow: make build makes the fast one"
	@cargo build --locked --workspace --bins --examples

quick: ## Build Egret with little optimization, for the gates of CI
	@scripts/need cc
	@$(say) "Building $(QUICK_EGRET): five to ten minutes the first time. make build makes a faster Egret"
	@cargo build $(QUICK_BUILD) --bin egret --examples

build: $(PROFILE) ## Build the release binary
	@$(say) "Building $(RELEASE): several minutes the first time"
	@scripts/release $(HOST) $(RELEASE) $(PROFILE)

profile $(PROFILE):
	@$(say) "Counting what runs often, by which releases are optimized: ten minutes"
	@scripts/profile $(HOST) $(PROFILE)

# Tests are always built for the whole workspace: with fewer packages, dependencies have other features, and are compiled again.
built-tests:
	@scripts/need cc && $(say) "Building Egret and its tests"
	@cargo build --locked --workspace --bins --tests

test-peers: $(peer-go-httpbin) $(peer-rclone) $(peer-python) $(peer-node-modules)
	@scripts/need curl ab wrk siege nginx redis-server openssl chromium-headless-shell script iptables ip unshare jq promtool

test: ## Run unit, property and end-to-end tests (ONLY=part of a name; ALL=1: unchanged ones too; ONLY=page_pictures PICTURES=1 draws those of the page)
	@$(make) test-peers & $(make) built-tests; built=$$?; wait $$! && exit $$built # Downloads beside computation.
	@$(say) "Unit, property and end-to-end tests, with the seed $(PROPTEST_RNG_SEED) for the cases of property tests"
	@$(if $(PICTURES),EGRET_PICTURES=$(CURDIR)/docs/images) scripts/tests $(if $(ALL),--all) $(ONLY)

lint: ## Check format, imports, prose, dependencies, and clippy
	@cargo fmt --all --check
	@$(say) "Dependencies, imports and prose"
	@status=0; for check in dependencies imports prose; do scripts/check-$$check || status=1; done; exit $$status
	@scripts/need cc
	@$(say) "Clippy"
	@$(make) $(peer-python) & cargo clippy --locked --workspace --all-targets -- -D warnings; status=$$?; wait $$! && exit $$status # as in `test`
	@.venv/bin/ruff format --quiet --check notebooks && .venv/bin/ruff check --quiet notebooks

house: ## Print sizes, imports, names and prose (AT=commit, PLACES=1)
	@scripts/house $(if $(AT),--at '$(AT)') $(if $(PLACES),--places)

doc: ## Build the code's documentation and run its examples
	@RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --lib --bins --examples
	@cargo test --locked --workspace --doc

# With ADVISORIES=no the check needs no network, and its result depends only on the lock file.
deny: $(peer-cargo-deny) ## Check licences and sources of dependencies (ADVISORIES=no)
	@$(PEERS)/bin/cargo-deny --locked check bans licenses sources
	@$(if $(filter no,$(ADVISORIES)),exit 0;) $(say) "Advisories"; \
	if ! git ls-remote --quiet --exit-code https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then \
		echo 'The advisory database cannot be reached: not checked.'; else $(PEERS)/bin/cargo-deny --locked check advisories; fi

# The built files are committed, so a build of Egret needs no Node.
ui: $(peer-ui) ## Build the page of the control port from its TypeScript
	@npm run --silent --prefix $(UI) check
	@node $(UI)/build.mjs $(PAGE)

# A quick build is optimized for minutes instead of a quarter of an hour. It takes more instructions, and has limits of its own.
instructions: $(peer-gungraun-runner) ## Count the instructions of the hot path (QUICK=1)
	@scripts/need valgrind +libc6-dbg
	@$(if $(QUICK),EGRET_QUICK=1) GUNGRAUN_RUNNER=$(abspath $(PEERS))/bin/gungraun-runner \
		cargo bench $(if $(QUICK),$(QUICK_BUILD),--locked --package egret --package egret-benches) --bench '*'

exchange: $(if $(QUICK),quick,build) ## Count the instructions of a whole exchange (QUICK=1)
	@scripts/need valgrind redis-server curl +libc6-dbg && scripts/exchange-instructions $(if $(QUICK),--quick $(QUICK_EGRET),$(RELEASE))

clean: ## Remove everything built or installed in the clone
	rm -rf target dist $(PEERS) .venv $(NODE_MODULES) fuzz/target
