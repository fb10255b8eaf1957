#!/bin/sh
# Builds every fuzz target and runs each for a short, fixed number of inputs.
#
#   fuzz/smoke.sh            every target
#   fuzz/smoke.sh NAME...    these targets
#   RUNS=1000000 fuzz/smoke.sh http1_body
#
# Needs what the project needs anyway: cargo on the stable toolchain and a C++ compiler (libFuzzer
# is built from source). The flags are those that cargo-fuzz gives, without the address sanitizer,
# which needs a nightly compiler and has little to find in code without `unsafe`. For a long hunt,
# with it: `cargo +nightly fuzz run NAME fuzz/corpus/NAME fuzz/seeds/NAME`.
set -eu

cd "$(dirname "$0")"
runs=${RUNS:-20000}
target_dir=${FUZZ_TARGET_DIR:-${CARGO_TARGET_DIR:-../target}/fuzz}
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${*:-$(sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"$/\1/p' Cargo.toml)}

command -v c++ >/dev/null || {
    echo "fuzz/smoke.sh: a C++ compiler is needed: apt-get install -y g++" >&2
    exit 1
}

RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --quiet --release --bins --target "$host" --target-dir "$target_dir"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in $targets; do
    mkdir -p "$work/$name" "seeds/$name" artifacts
    if "$target_dir/$host/release/$name" "$work/$name" "seeds/$name" \
        -runs="$runs" -seed=1 -max_len=2048 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="artifacts/$name-" >"$work/log" 2>&1; then
        echo "fuzz $name: $runs inputs, no finding"
    else
        tail -n 40 "$work/log" >&2
        echo "fuzz $name: failed; the input is in fuzz/artifacts" >&2
        exit 1
    fi
done
