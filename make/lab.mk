# The lab, and figures of this machine: do not use it meanwhile.

# Experiments need programs in these folders, which are not packaged.
PROGRAMS := $(abspath $(PEERS))/bin:$(abspath $(TARGET))/proxies:$(abspath $(TARGET))/providers:$(abspath $(PORTKEY))/node_modules/.bin
lab footprint modes truth: export PATH := $(PROGRAMS):$(PATH):$(abspath $(peer-mitmdump))/bin:$(abspath $(peer-litellm))/bin

EXPERIMENT ?= modes
run-lab = $(RELEASE) lab run experiments/$(EXPERIMENT).yaml $(if $(FULL),,--quick) $(addprefix --case ,$(CASE))
lab: build ## Run an experiment and write a report to results/ (EXPERIMENT=modes, FULL=1, HOLD=1, CASE, ROUNDS, SECONDS, OUT=folder)
	@$(say) "Installing what $(EXPERIMENT) needs"
	@$(make) --keep-going needs NEEDS="$$($(run-lab) --needs | xargs)" || echo 'Optional scenarios without their program are left out.'
	@$(say) "Running $(EXPERIMENT): do not use the machine meanwhile"
	@$(run-lab) $(if $(HOLD),--hold) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(OUT),--out $(OUT))

needs: need-packages $(foreach name,$(NEEDS),$(peer-$(name)))

need-packages:
	@scripts/need $(foreach name,$(NEEDS),$(if $(peer-$(name)),,$(name)))

# The experiment that the README shows.
modes: OUT := results/modes-published-$(shell date +%Y-%m-%d-%H%M)
modes: ## Run the experiment `modes` in full, an hour, and write its chart to docs/images/modes.svg (ROUNDS)
	@$(make) lab EXPERIMENT=modes FULL=1 OUT=$(OUT)
	@cp $(OUT)/charts/default-added-at.svg docs/images/modes.svg

findings: test-peers ## Judge how soon findings begin and end, and that healthy load has none (MINUTES=10: so long a load, by default some seconds)
	@EGRET_FINDINGS_TIMED=1 scripts/tests faults_of_a_night findings_begin findings_end findings_of_parts
	@$(if $(MINUTES),EGRET_HEALTHY_MINUTES=$(MINUTES)) cargo test --locked --workspace --test e2e healthy_load_has_no_findings

# All three run, even if an earlier one fails.
truth: $(peer-go-httpbin) $(peer-oha) built-tests ## Compare the lab's own tools with ab, wrk, oha, h2load and go-httpbin (FULL=1 for reliable results)
	@scripts/need ab wrk h2load
	@cargo test --locked --workspace --test clients -- --test-threads 1
	@status=0; for each in agreement clients http2-agreement http2-clients providers; do $(make) lab EXPERIMENT=$$each HOLD=1 || status=1; done; exit $$status

# A quick run checks no limits, because its figures are too rough.
footprint: EXPERIMENT = $(if $(BEFORE),before,peers)
footprint: CASE = loaded $(if $(BEFORE),,at-rate)
footprint: FULL = $(if $(QUICK),,1)
footprint: HOLD = $(FULL)
footprint: $(if $(BEFORE),earlier) lab ## Compare Egret with a byte relay, nginx, HAProxy and Envoy, or an earlier Egret (BEFORE=path; EXPERIMENT, CASE, ROUNDS, SECONDS, QUICK=1)

# A copy, so BEFORE may be the binary that the build replaces.
peer-before := $(TARGET)/proxies/before
earlier:
	@install -D -m 755 '$(BEFORE)' $(peer-before)

handover: build ## Restart five times under the load of ab and wrk, with a quota armed, and print what the provider counted
	@scripts/need ab wrk && scripts/handover $(RELEASE)

interception-costs: build ## Measure the first connection to an intercepted host, the memory of 1,000 hosts, a request, and `egret exec`
	@scripts/need valgrind openssl +libc6-dbg && scripts/interception-costs $(RELEASE)

cluster-demo: debug ## Start Redis, three gateways that share a limit, and their provider, which counts the calls (SECONDS=60)
	@scripts/need redis-server && exec scripts/cluster-demo $(DEBUG_EGRET) $(SECONDS)

# Of the packages' binaries, the second one built is the image's, and its symbols are still there.
size: $(if $(IMAGE),package-binaries,build) ## Print the parts of the release binary, or of the image's (IMAGE=1), and its code by crate
	@scripts/need nm && scripts/size $(if $(IMAGE),$(TARGET)/$(HOST)/release/egret,$(RELEASE).debug)

script-size: $(if $(QUICK),quick,build) ## Add up what the remedy `script` costs in the binary, against its bound (QUICK=1: in a quick build)
	@scripts/need nm size && scripts/script-size $(if $(QUICK),$(QUICK_EGRET),$(RELEASE).debug)
