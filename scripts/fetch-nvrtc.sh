#!/bin/sh
# Installs the pinned NVRTC wheel into .venv of the repository, where tests and the driver find it.
# Driver 580 runs CUDA 13.0; newer NVRTC releases write PTX that it cannot load.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps nvidia-cuda-nvrtc==13.0.88
found=$(find "$root/.venv" -name 'libnvrtc.so.13' | head -n 1)
[ -n "$found" ] || { echo "libnvrtc.so.13 is not in the wheel" >&2; exit 1; }
dirname "$found"
