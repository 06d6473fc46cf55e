#!/usr/bin/env bash
# ./dev gpu-test: builds (build.sh) and runs the GPU tests part by part, each within its time. A part that has passed is
# not run again until the build changes; PLUMBLINE_GPU_PARTS names some of them. Records and logs land in build/gpu/out.
# --doubles runs the same tests on the doubles, where there is no device.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
bash backends/cuda/gpu/build.sh
out=build/gpu/out
mkdir -p "$out"
mode=gpu
if [[ ${1:-} == --doubles ]]; then mode=doubles; fi
if [[ $mode == gpu ]]; then
  export PLUMBLINE_GPU=1 PLUMBLINE_GPU_OUT="$PWD/$out"
  command -v nvidia-smi >/dev/null && nvidia-smi -L || {
    echo "gpu-test: nvidia-smi finds no device; --doubles runs the tests without one" >&2
    exit 75
  }
  # NCCL of the toolkit or of a Python wheel.
  if [[ -z ${NCCL_LIBRARY:-} ]] && command -v python3 >/dev/null; then
    found=$(python3 - <<'P' 2>/dev/null || true
import glob, site
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for name in glob.glob(folder + "/nvidia/nccl/lib/libnccl.so.2"):
        print(name)
        raise SystemExit
P
    )
    if [[ -n $found ]] && ! ldconfig -p | grep -q libnccl.so.2; then export NCCL_LIBRARY=$found; fi
  fi
fi

parts=${PLUMBLINE_GPU_PARTS:-headers loopback nccl graphs train}
failed=0
for part in $parts; do
  program=build/gpu/gpu_tests
  case $part in
    headers) filter='*Header*:Libraries.*' ;;
    loopback) filter='Loopback.*' ;;
    nccl) filter='NcclAlone.*' ;;
    graphs) filter='GraphsAlone.*' ;;
    train)
      filter='*DeviceRuns.*' program=build/gpu/gpu_train_tests
      if [[ ! -x $program ]]; then
        echo "gpu-test: train is left out, there is no LibTorch"
        continue
      fi
      ;;
    *) echo "gpu-test: unknown part $part; known are headers, loopback, nccl, graphs, train" >&2; exit 2 ;;
  esac
  stamp=$out/$part.$mode.passed
  if [[ -f $stamp && $stamp -nt $program ]]; then
    echo "gpu-test: $part has passed before"
    continue
  fi
  start=$SECONDS
  if timeout 480 "$program" --gtest_filter="$filter" >"$out/$part.$mode.log" 2>&1; then
    touch "$stamp"
    echo "gpu-test: $part passed in $((SECONDS - start)) s ($(grep -c '       OK' "$out/$part.$mode.log") tests)"
  else
    failed=1
    echo "gpu-test: $part FAILED in $((SECONDS - start)) s; the end of $out/$part.$mode.log:"
    tail -n 30 "$out/$part.$mode.log"
  fi
done
exit $failed
