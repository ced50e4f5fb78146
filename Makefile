# make demo   build, mount, write, settle, read back, compare, unmount (KEEP=1 leaves it mounted)
# make test   everything: set-up, checks, unit and end-to-end tests, a summary at the end
# make torture  crashes, losses of power, damage, sick devices and load for HOURS=1
# make install [PREFIX=/usr/local] [DESTDIR=]   the command, the mount helpers, the unit, manual
#             pages and completions; make uninstall removes them again
# make deb    a Debian package in target/
# make bench  ShaleFS beside its peers, as root, under 30 minutes (QUICK=1: under 4)
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
SHALE ?= $(TARGET)/release/shale
export CARGO

# Under sudo, root may have no cargo while the user has rustup: use the user's toolchain, and leave
# the user's ~/.cargo alone.
ifeq ($(shell command -v $(firstword $(CARGO)) 2> /dev/null),)
USER_HOME := $(shell [ -z "$$SUDO_USER" ] || getent passwd "$$SUDO_USER" | cut -d: -f6)
ifneq ($(and $(USER_HOME),$(wildcard $(USER_HOME)/.cargo/bin/cargo)),)
export PATH := $(USER_HOME)/.cargo/bin:$(PATH)
export RUSTUP_HOME ?= $(USER_HOME)/.rustup
endif
endif
TOOLCHAIN := packaging/toolchain.sh
# Without protoc there is no etcd engine. Looked up when it is needed: the set-up may install it.
FEATURES = $(shell packaging/protoc.sh && echo --features etcd)

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The day of the last change, so that two builds of one version are the same.
DATE := $(shell git log -1 --format=%cs 2> /dev/null || date +%F)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
# mount(8) looks for helpers only here; /sbin where that is not a link to /usr/sbin.
HELPERDIR ?= /usr/sbin
UNITDIR ?= $(PREFIX)/lib/systemd/system
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/shale
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
HELPERS := mount.shale mount.fuse.shale umount.shale umount.fuse.shale
GENERATED := $(TARGET)/generated

.PHONY: all build failpoints demo can-mount test setup check unit e2e interleavings torture bench bench-codec bench-docs \
	fuzz-codec fuzz-layout fuzz-index fuzz-store fuzz-policy miri-codec tsan clean generated install uninstall deb

all: build

build:
	@$(TOOLCHAIN) build
	$(CARGO) build --release --locked $(FEATURES)

# The daemon that aborts where a test says. Building with the tests turns that feature on.
failpoints:
	@$(TOOLCHAIN)
	$(CARGO) build --locked -p shale -p shale-tests $(FEATURES)
	install -D "$(TARGET)/debug/shale" "$(TARGET)/failpoints/shale"

# KEEP reaches the command through the environment.
demo: can-mount build
	$(SHALE) demo

can-mount:
	@$(TOOLCHAIN) demo

test:
	@$(TOOLCHAIN)
	@tests/scripts/test.sh

setup:
	@$(TOOLCHAIN)
	@tests/scripts/setup.sh

check:
	@tests/scripts/test.sh check

unit:
	@tests/scripts/test.sh unit

# The store under a scheduler of threads, built with other locks than the other suites.
interleavings:
	@tests/scripts/interleavings.sh

# One suite alone: cargo test -p shale-tests --test posix -- [name of a test]
e2e: build setup
	@tests/scripts/test.sh e2e

$(SHALE):
	@$(TOOLCHAIN) build
	$(CARGO) build --release --locked $(FEATURES)

# Pages and completions that the command generates, and the page that is written by hand.
generated: $(SHALE)
	rm -rf "$(GENERATED)"
	"$(abspath $(SHALE))" generate --date "$(DATE)" "$(GENERATED)"
	mkdir -p "$(GENERATED)/man8"
	sed 's/@DATE@/$(DATE)/; s/@VERSION@/$(VERSION)/' packaging/mount.fuse.shale.8 > "$(GENERATED)/man8/mount.fuse.shale.8"
	for helper in $(filter-out mount.fuse.shale,$(HELPERS)); do ln -s mount.fuse.shale.8 "$(GENERATED)/man8/$$helper.8"; done

install: generated
	install -d $(foreach dir,$(BINDIR) $(HELPERDIR) $(UNITDIR) $(MANDIR)/man1 $(MANDIR)/man8 $(DOCDIR) $(BASHDIR) $(ZSHDIR) $(FISHDIR),"$(DESTDIR)$(dir)")
	install -m 755 "$(SHALE)" "$(DESTDIR)$(BINDIR)/shale"
	for helper in $(HELPERS); do ln -sfr "$(DESTDIR)$(BINDIR)/shale" "$(DESTDIR)$(HELPERDIR)/$$helper" || exit 1; done
	sed 's,/usr/bin/shale,$(BINDIR)/shale,' systemd/shale@.service > "$(DESTDIR)$(UNITDIR)/shale@.service"
	chmod 644 "$(DESTDIR)$(UNITDIR)/shale@.service"
	cp -P --no-preserve=ownership "$(GENERATED)"/man1/* "$(DESTDIR)$(MANDIR)/man1/"
	cp -P --no-preserve=ownership "$(GENERATED)"/man8/* "$(DESTDIR)$(MANDIR)/man8/"
	install -m 644 "$(GENERATED)/bash/shale.bash" "$(DESTDIR)$(BASHDIR)/shale"
	install -m 644 "$(GENERATED)/zsh/_shale" "$(DESTDIR)$(ZSHDIR)/_shale"
	install -m 644 "$(GENERATED)/fish/shale.fish" "$(DESTDIR)$(FISHDIR)/shale.fish"
	install -m 644 README.md CHANGELOG.md docs/*.md docs/*.json docs/*.yml "$(DESTDIR)$(DOCDIR)/"
	install -d "$(DESTDIR)$(DOCDIR)/notes"
	install -m 644 docs/notes/*.md "$(DESTDIR)$(DOCDIR)/notes/"

# Configuration in /etc/shale stays.
uninstall:
	rm -f "$(DESTDIR)$(BINDIR)/shale" $(foreach helper,$(HELPERS),"$(DESTDIR)$(HELPERDIR)/$(helper)")
	rm -f "$(DESTDIR)$(UNITDIR)/shale@.service"
	rm -f "$(DESTDIR)$(MANDIR)"/man1/shale.1 "$(DESTDIR)$(MANDIR)"/man1/shale-*.1 $(foreach helper,$(HELPERS),"$(DESTDIR)$(MANDIR)/man8/$(helper).8")
	rm -f "$(DESTDIR)$(BASHDIR)/shale" "$(DESTDIR)$(ZSHDIR)/_shale" "$(DESTDIR)$(FISHDIR)/shale.fish"
	rm -rf "$(DESTDIR)$(DOCDIR)"

deb: $(SHALE)
	FEATURES="$(FEATURES)" packaging/deb.sh "$(VERSION)" "$(SHALE)" "$(TARGET)"

# All workloads beside all peers; refreshes bench/results/latest.*, docs/performance.md and README.md.
# QUICK=1 reaches the script through the environment.
bench: build
	SHALE_BIN="$(abspath $(SHALE))" bench/run.sh

# One workload: make bench-stream, bench-shared, bench-settle, ... (bench/README.md lists them).
bench-%: build
	SHALE_BIN="$(abspath $(SHALE))" bench/run.sh $*

# Crashes, losses of power, damage, sick devices and load for a given time: make torture HOURS=2
torture: build failpoints setup
	@tests/scripts/torture.sh

# The codec beside its peers, as a table; needs a quiet machine.
bench-codec:
	bench/codec/run.sh

# Regenerates the generated parts of docs/performance.md and README.md from the last full run.
bench-docs:
	bench/run.sh --docs bench/results/latest.json

# Needs a nightly toolchain and cargo-fuzz. SECONDS=3600 make fuzz-codec
fuzz-codec:
	cd codec && $(CARGO) +nightly fuzz run --fuzz-dir fuzz -O -a decode -- -max_len=8192 -max_total_time=$(or $(SECONDS),600)
	cd codec && $(CARGO) +nightly fuzz run --fuzz-dir fuzz -O -a roundtrip -- -max_len=4096 -max_total_time=$(or $(SECONDS),600)

# The same for the parsers of file formats. SECONDS=3600 make fuzz-layout
fuzz-layout:
	mkdir -p layout/fuzz/corpus/parse
	cd layout && $(CARGO) +nightly fuzz run --fuzz-dir fuzz parse fuzz/corpus/parse tests/samples -- -max_len=30000 -max_total_time=$(or $(SECONDS),600)

# The readers of the files of a store (index, packs, superblock) and of attributes that users set.
# SECONDS is for each target. The seeds are under CRATE/fuzz/corpus, and do not change.
FUZZ = $(CARGO) +nightly fuzz run --fuzz-dir fuzz -O -a $(1) fuzz/found/$(1) fuzz/corpus/$(1) -- -max_len=$(2) -max_total_time=$(or $(SECONDS),600)

fuzz-index:
	cd index && mkdir -p $(addprefix fuzz/found/,journal snapshot checkpoint block value)
	cd index && $(call FUZZ,journal,16384)
	cd index && $(call FUZZ,snapshot,4096)
	cd index && $(call FUZZ,checkpoint,4096)
	cd index && $(call FUZZ,block,4096)
	cd index && $(call FUZZ,value,4096)

fuzz-store:
	cd store && mkdir -p $(addprefix fuzz/found/,superblock pack map)
	cd store && $(call FUZZ,superblock,128)
	cd store && $(call FUZZ,pack,8192)
	cd store && $(call FUZZ,map,4096)

fuzz-policy:
	cd fs && mkdir -p fuzz/found/policy
	cd fs && $(call FUZZ,policy,512)

# Needs a nightly toolchain with Miri. Only the scalar code, without calls of C.
miri-codec:
	$(CARGO) +nightly miri test -p shale-codec --lib -- --skip every_coder --skip any_size --skip any_width --skip simd

# Data races, with the thread sanitizer; says what must be installed.
tsan: setup
	@tests/scripts/tsan.sh

clean:
	$(CARGO) clean
