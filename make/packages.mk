# Packages, and the documentation as a site.

.PHONY: package-binaries package package-twice test-packages site

# Packages are for the machine's own processor, with its C library, or with LIBC=musl the one that Rust brings, which makes an archive alone.
$(if $(filter-out musl,$(LIBC)),$(error LIBC=$(LIBC) is unknown: use LIBC=musl, or leave it out))
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
PACKAGE_TARGET = $(if $(LIBC),$(HOST:-gnu=-$(LIBC)),$(HOST))
PACKAGED = $(TARGET)/package/$(PACKAGE_TARGET)
# Read once: a commit during the build must not get into half of the packages.
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
COMMIT_S := $(shell git log -1 --format=%ct 2>/dev/null)
package: export SOURCE_DATE_EPOCH ?= $(COMMIT_S)
package-binaries: export EGRET_COMMIT ?= $(COMMIT)
package-binaries: $(if $(LIBC),,$(PROFILE))
	@scripts/need cc strip $(if $(LIBC),musl-gcc)
	@$(say) "Building the binaries of the packages: several minutes the first time"
	@packaging/binaries $(PACKAGE_TARGET) $(PACKAGED) $(if $(LIBC),,$(PROFILE))

package: $(if $(LIBC),,$(peer-nfpm)) package-binaries ## Make all packages in dist/: archive, deb, rpm, wheel, npm packages, image (LIBC=musl: an archive)
	@$(say) "Making the packages"
	@packaging/package --binary $(PACKAGED)/egret --target $(PACKAGE_TARGET) --out dist \
		$(if $(LIBC),,--small $(PACKAGED)/egret-small --nfpm $(PEERS)/bin/nfpm --npm-processors $(NPM_PROCESSORS))

package-twice: ## Show that packages are reproducible: make them here and in a clone, and compare (not in CI: twice the time; TWICE=folder keeps the clone)
	@packaging/twice

test-packages: package $(peer-package-tests) $(peer-helm) $(peer-kubeconform) $(peer-actionlint) ## Install and run every package in dist/ (ONLY=name of a test file)
	@scripts/need readelf ip unshare nsenter curl node npm lintian rpm skopeo runc mmdebstrap man zsh fish promtool
	@unshare --mount --net true || { echo 'This suite makes fresh systems and networks (CAP_SYS_ADMIN): run it as root.' >&2; exit 1; }
	@cd packaging/tests && $(abspath $(PEERS))/package-tests/bin/python -m unittest --verbose $(or $(ONLY),$(if $(LIBC),test_binary))

# The pages keep their paths, so links work on the site and in the clone. Reports of the lab are added if results/ has some.
SITE := $(TARGET)/site
site: $(peer-mdbook) ## Make the documentation as a site with search, in target/site/book, and follow all its links
	@packaging/site/build --mdbook $(PEERS)/bin/mdbook --out $(SITE)
	@packaging/site/check $(SITE)/book
