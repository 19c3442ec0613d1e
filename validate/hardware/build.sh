#!/usr/bin/env bash
# Builds what run.sh takes to a machine with a GPU, where there may be no Rust: bash validate/hardware/build.sh [TARGET]
# For plain x86-64 and the C library of this machine; build on the older one of the two. Goes to validate/hardware/bin.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${1:-x86_64-unknown-linux-gnu}
to=validate/hardware/bin
# the machine's own processor must not be taken for the other one's
export RUSTFLAGS="-C target-cpu=x86-64"
[[ $target == x86_64-* ]] || unset RUSTFLAGS
cargo build --release --target "$target" -p vramlab -p vramlab-validate -p vramlab-torch-plugin
mkdir -p "$to"
from=${CARGO_TARGET_DIR:-target}/$target/release
cp "$from/vramlab" "$from/vramlab-validate" "$from/libvramlab_torch.so" "$to/"
ls -l "$to"
