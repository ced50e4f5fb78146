# make demo   build, mount, write, read back, compare, unmount (KEEP=1 leaves it mounted)
# make test   everything: set-up, checks, unit and end-to-end tests, a summary at the end
CARGO ?= cargo
SHALE := target/release/shale
export CARGO

.PHONY: all build demo test setup check unit e2e bench-codec bench-settle \
	fuzz-codec fuzz-layout miri-codec clean

all: build

build:
	$(CARGO) build --release --locked

# KEEP reaches the command through the environment.
demo: build
	$(SHALE) demo

test:
	@tests/scripts/test.sh

setup:
	@tests/scripts/setup.sh

check:
	@tests/scripts/test.sh check

unit:
	@tests/scripts/test.sh unit

# One suite alone: cargo test -p shale-tests --test posix -- [name of a test]
e2e: build setup
	@tests/scripts/test.sh e2e

# The codec beside its peers, as a table; wants a quiet machine.
bench-codec:
	bench/codec/run.sh

# Sizes and slices of settled files beside btrfs and nccopy; root.
bench-settle: build
	bench/settle/run.sh

# Needs a nightly toolchain and cargo-fuzz. SECONDS=3600 make fuzz-codec
fuzz-codec:
	cd codec && $(CARGO) +nightly fuzz run --fuzz-dir fuzz -O -a decode -- -max_len=8192 -max_total_time=$(or $(SECONDS),600)
	cd codec && $(CARGO) +nightly fuzz run --fuzz-dir fuzz -O -a roundtrip -- -max_len=4096 -max_total_time=$(or $(SECONDS),600)

# The same for the parsers of file formats. SECONDS=3600 make fuzz-layout
fuzz-layout:
	mkdir -p layout/fuzz/corpus/parse
	cd layout && $(CARGO) +nightly fuzz run --fuzz-dir fuzz parse fuzz/corpus/parse tests/samples -- -max_len=30000 -max_total_time=$(or $(SECONDS),600)

# Needs a nightly toolchain with Miri. The scalar code, without what calls C.
miri-codec:
	$(CARGO) +nightly miri test -p shale-codec --lib -- --skip every_coder --skip any_size --skip any_width --skip simd

clean:
	$(CARGO) clean
