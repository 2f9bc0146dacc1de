# Packages, and the documentation as a site.

# Packages are for the machine's own processor or those of PROCESSORS, with its C library, or with LIBC=musl the one that Rust brings.
$(if $(filter-out musl,$(LIBC)),$(error LIBC=$(LIBC) is unknown: use LIBC=musl, or leave it out))
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
PROCESSORS ?= $(MACHINE)
MACHINE := $(shell uname -m)
PACKAGED := $(TARGET)/package
package_targets = $(addsuffix -unknown-linux-$(or $(LIBC),gnu),$(PROCESSORS))
profile_of = $(if $(filter $(MACHINE)-%-gnu,$1),$(PROFILE))
# Read once: a commit during the build must not get into half of the packages.
COMMIT := $(shell git log -1 --abbrev=12 --format='%h %ct' 2>/dev/null)
package: export SOURCE_DATE_EPOCH ?= $(lastword $(COMMIT))
package-binaries: export EGRET_COMMIT ?= $(firstword $(COMMIT))
package-binaries: $(call profile_of,$(package_targets))
	@scripts/need cc strip $(if $(LIBC),musl-gcc)
	@$(say) "Building the binaries of the packages: several minutes the first time"
	@set -e; $(foreach each,$(package_targets),packaging/binaries $(each) $(PACKAGED)/$(each) $(call profile_of,$(each));)

package: $(if $(LIBC),,$(peer-nfpm)) package-binaries ## Make all packages in dist/: archive, deb, rpm, wheel, npm packages, image (PROCESSORS="x86_64 aarch64", LIBC=musl: an archive)
	@$(say) "Making the packages"
	@packaging/package --binaries $(PACKAGED) --nfpm $(PEERS)/bin/nfpm --out dist $(package_targets)

package-twice: ## Show that packages are reproducible: make them here and in a clone, and compare (not in CI: twice the time; TWICE=folder keeps the clone)
	@packaging/twice

test-packages: $(if $(DIST),,package) $(peer-package-tests) $(peer-helm) $(peer-kubeconform) $(peer-actionlint) ## Install and run every package in dist/ (ONLY=name of a test file, DIST=folder: of packages from elsewhere)
	@scripts/need readelf ip unshare nsenter curl node npm lintian rpm skopeo runc mmdebstrap man zsh fish promtool
	@unshare --mount --net true || { echo 'This suite makes fresh systems and networks (CAP_SYS_ADMIN): run it as root.' >&2; exit 1; }
	@cd packaging/tests && DIST=$(abspath $(or $(DIST),dist)) $(abspath $(PEERS))/package-tests/bin/python -m unittest --verbose $(or $(ONLY),$(if $(LIBC),test_binary))

# The pages keep their paths, so links work on the site and in the clone. Reports of the lab are added if results/ has some.
SITE := $(TARGET)/site
site: $(peer-mdbook) ## Make the documentation as a site with search, in target/site/book, and follow all its links
	@packaging/site/build --mdbook $(PEERS)/bin/mdbook --out $(SITE)
	@packaging/site/check $(SITE)/book
