#!/usr/bin/env bash
# Passes the tests: formatting, lints, documentation, every suite. Installs what they need, pinned.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# Expectations are compared, never rewritten.
unset SPINEC_BLESS || true

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

if [ -f scripts/fetch-nvrtc.sh ]; then
  # Kernel tests compile CUDA sources; the library comes from a pinned wheel.
  SPINEC_NVRTC_DIR=$(bash scripts/fetch-nvrtc.sh)
  export SPINEC_NVRTC_DIR SPINEC_REQUIRE_NVRTC=1
fi

cargo test --workspace --quiet
# The driver itself, which a plain build leaves out.
cargo test -p spinec-codegen-cuda --features nvrtc --quiet
