# Tests that take long, need root, or are run by hand.

steady: test-peers built-tests ## Repeat unit and end-to-end tests in random order, and list those that ever fail (RUNS=20, BUSY=1, SEED, ONLY=part of a name)
	@scripts/tests --runs $(or $(RUNS),20) $(if $(SEED),--seed $(SEED)) $(if $(BUSY),--busy) $(ONLY)

cold-times: ## Time `make run` and `make test` in fresh clones with empty caches, against their bounds (CI=1: .ci/run too): an hour, on an idle machine
	@scripts/cold-times $(if $(CI),--ci) $(if $(ONLY),--only $(ONLY))

NEW_SEED := $(or $(SEED),$(START))
properties model: export PROPTEST_RNG_SEED := $(NEW_SEED)
properties: export PROPTEST_CASES := $(or $(CASES),4000)
properties: ## Run property tests with other cases than `make test` (CASES=4000, SEED, ONLY=part of a name)
	@scripts/need cc
	@$(say) "Property tests with $(PROPTEST_CASES) cases each: make properties CASES=$(PROPTEST_CASES) SEED=$(NEW_SEED) repeats them"
	@cargo test --locked --workspace --exclude egret-tests --tests --no-fail-fast -- $(ONLY)

# They judge time and shares of allowances, so no other test runs beside them, and CI leaves them out.
test-timed: $(peer-node-modules) built-tests ## Run the tests that judge time, one at a time: do not use the machine meanwhile (ONLY=part of a name)
	@scripts/need ab wrk redis-server chromium-headless-shell promtool chrt
	@cargo test --locked --workspace --test timed -- --test-threads 1 --nocapture $(ONLY)

test-clients: $(peer-python) $(peer-node-modules) $(peer-runtimes) $(peer-javascript) $(peer-stripe-mock) $(peer-h2spec) $(peer-grpc_interop) $(peer-vault) built-tests ## Run programs of many runtimes under egret exec, clients of HTTP/2, h2spec, gRPC's interoperability tests, and Egret with moto and Vault (ONLY=part of a name, MINUTES of lasting streams: a third)
	@scripts/need nginx unshare mount curl nghttp wget git python3 node go javac ruby php +php-curl chromium certutil
	@EGRET_STREAM_MINUTES=$(MINUTES) cargo test --locked --workspace --test runtimes -- --test-threads $(if $(MINUTES),4,2) $(ONLY)

garden: $(if $(QUICK),,$(peer-garden) $(peer-envoy)) $(peer-javascript) built-tests ## Play messages that break rules between real servers, clients and Egret (SERVERS="nginx curl", MESSAGES=1000 for each, or SECONDS; SEEDS, NUMBER of one message; QUICK=1: few, with peers that are soon installed)
	@scripts/need nginx haproxy node go ruby curl python3 $(if $(QUICK),,apache2 lighttpd puma javac) && $(foreach each,QUICK SERVERS MESSAGES SECONDS SEEDS NUMBER,$(if $($(each)),GARDEN_$(each)='$($(each))')) cargo test --locked --workspace --test garden -- --nocapture --test-threads 1

soak: built-tests ## Load a gateway with everything armed, judge its growth, and draw a chart in results/ (HOURS=2, or MINUTES=3; SEED=1, OUT=folder)
	@EGRET_SOAK_HOURS=$(HOURS) EGRET_SOAK_MINUTES=$(MINUTES) EGRET_SOAK_SEED=$(SEED) EGRET_SOAK_OUT=$(abspath $(or $(OUT),results/soak-$(shell date +%Y-%m-%d-%H%M))) cargo test --locked --workspace --test soak -- --nocapture

chaos: built-tests ## Play faults to gateways, their store and providers, and compare the ledgers; needs root (MINUTES=1, SEED)
	@scripts/need redis-server redis-sentinel faketime ip unshare mount python3
	@EGRET_CHAOS_MINUTES=$(MINUTES) EGRET_CHAOS_SEED=$(SEED) nice -n -10 unshare --net --mount cargo test --locked --workspace --test chaos -- --nocapture

test-machines: built-tests ## Run the lab on three machines, and Egret behind Squid and other proxies, in network namespaces; needs root
	@scripts/need sshd ssh ssh-keygen ip nsenter setpriv squid microsocks openssl curl python3 && unshare --net true || { echo 'This suite needs network namespaces (CAP_SYS_ADMIN): run it as root.' >&2; exit 1; }
	@cargo test --locked --workspace --test machines -- --test-threads 1

test-arm64: test-peers built-tests ## Run Egret for arm64 in QEMU: its size, its time to start, and scenarios (FULL=1: the binary of the packages; ONLY=name of a scenario)
	@$(if $(FULL),,QUICK=1) scripts/test-arm64 $(or $(ONLY),$(addprefix scenarios::,friendly_start::only_the_demo tls:: intercept_clients:: flow_limits:: flow_scripts:: http2_messages:: har_surface:: handover_state::a_quota))

check-macos: ## Check the types of the code for macOS, which needs no Mac
	@scripts/check-macos

ALONE := steady rolling_restart # They measure shares of limits
test-cluster: $(peer-valkey-server) $(if $(ONLY),,model) built-tests ## Play `make model`, then share quotas among eight gateways over Redis and Valkey, through faults: a quarter of an hour (ONLY=name of a scenario)
	@scripts/need redis-server redis-sentinel faketime strace setpriv chromium-headless-shell
	@$(say) "Scenarios: do not use the machine meanwhile"
	@status=0; $(if $(ONLY),,cargo test --locked --workspace --test cluster -- --test-threads 1 --nocapture $(ALONE) || status=1;) \
	cargo test --locked --workspace --test cluster -- --test-threads 3 --nocapture $(or $(ONLY),$(addprefix --skip ,$(ALONE))) || status=1; \
	$(say) "All scenarios"; exit $$status

HISTORIES ?= 2000
model: ## Play random histories of the protocol by which gateways share a quota (HISTORIES=2000, MIRRORED=200, SEED): five minutes
	@scripts/need cc redis-server
	@$(say) "Playing $(HISTORIES) histories of the seed $(NEW_SEED)"
	@EGRET_MODEL_HISTORIES=$(HISTORIES) cargo test $(QUICK_BUILD) --lib model -- --nocapture
	@$(say) "Playing $(or $(MIRRORED),200) histories beside Redis, which must give the same replies"
	@EGRET_MODEL_HISTORIES=$(or $(MIRRORED),200) scripts/with-redis EGRET_MODEL_REDIS \
		cargo test $(QUICK_BUILD) --lib model_histories -- --nocapture

ledger: built-tests ## Compare tokens and money with bills, spend budgets by many streams, lose responses (CALLS=10000 of each kind, STREAMS=1000, SEEDS=20, ONLY): hours
	@EGRET_CALLS=$(or $(CALLS),10000) EGRET_STREAMS=$(or $(STREAMS),1000) EGRET_SEEDS=$(or $(SEEDS),20) cargo test --locked --workspace --test e2e -- --nocapture --test-threads 1 $(or $(ONLY),metered_tokens money_ posts_are_made_once stream_of_comments)

fuzz: export PATH := $(abspath $(PEERS))/bin:$(PATH)
fuzz: $(peer-cargo-fuzz) ## Fuzz every target (FUZZ_ONLY, FUZZ_SECONDS=120, FUZZ_LONG, FUZZ_LONG_SECONDS=600, FUZZ_JOBS=1)
	@scripts/need cc && scripts/fuzz

# The same selection as `built-tests`, so only crates that have the feature are compiled again. FAST=1 optimizes these.
SIMULATION := --locked --workspace --features egret-simulation/simulated --test worlds --test sockets --test files
simulate: ## Run the gateway in simulated worlds, with faults from seeds (SEEDS=2000, FIRST; SEED=17 repeats one, LOG=1; PLANTED=1 finds planted defects; CHECK=1 runs its tests first; FAST=1 optimizes the gateway, for many seeds)
	@scripts/need cc && $(if $(FAST),export CARGO_PROFILE_DEV_OPT_LEVEL=1 &&) cargo build $(SIMULATION) --bin egret-simulation && $(if $(CHECK),cargo test $(SIMULATION) &&) \
		$(TARGET)/debug/egret-simulation $(if $(PLANTED),planted $(SEEDS),$(if $(SEED),one $(SEED) $(if $(LOG),log),$(or $(SEEDS),2000) $(FIRST)))

fuzz-check: ## Check the code of the fuzz targets, which no test builds
	@scripts/need c++ && RUSTFLAGS=-Adead_code cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz-check

loom: ## Play models of what threads share, in all orders that the memory model allows: a minute
	@cargo run --quiet --locked --manifest-path tests/loom/Cargo.toml --target-dir $(TARGET)/loom

sanitize: loom ## Play `make loom`, run unit tests in Miri and scenarios under ThreadSanitizer, with a nightly compiler: an hour (ONLY=miri or threads)
	@scripts/sanitize $(ONLY)

# Regression tests must fail with a binary without the fixes. Run by hand, because CI does not have such a binary.
regressions: $(if $(BEFORE)$(BEFORE_COMMIT),test-peers) ## Show that regression tests fail without the fixes (BEFORE=path, or BEFORE_COMMIT)
	@scripts/regressions $(if $(BEFORE),--before '$(BEFORE)') $(if $(BEFORE_COMMIT),--before-commit '$(BEFORE_COMMIT)') $(ONLY)

ui-check: $(peer-ui) ## Check the page's types and size, and that the committed files are those that its sources give
	@npm run --silent --prefix $(UI) check
	@rm -rf $(PEERS)/page && node $(UI)/build.mjs $(PEERS)/page
	@diff --recursive --brief $(PEERS)/page $(PAGE) || { echo 'Run `make ui`, and commit $(PAGE).' >&2; exit 1; }; echo 'The committed page is up to date'
