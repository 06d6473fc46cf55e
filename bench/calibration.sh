#!/usr/bin/env bash
# ./dev calibration: how well the simulator predicts real runs. Trains a small GPT over Gloo in one layout, fits costs
# to it, and predicts other layouts that are then run too; ends with the table of errors of `plumbline calibrate`. Ranks
# share this machine's cores, so nothing else should run meanwhile: the load is printed before and after.
#
#   CALIBRATION_OUT      folder of the records (default build/calibration)
#   CALIBRATION_STEPS    training steps a run, of which the first is left out (default 12)
#   CALIBRATION_HIDDEN   width of the model (default 192)
set -euo pipefail
plumbline=$1
out=${CALIBRATION_OUT:-build/calibration}
steps=${CALIBRATION_STEPS:-12}
hidden=${CALIBRATION_HIDDEN:-192}
rm -rf "$out"
mkdir -p "$out"

# name, ranks, then what differs. The model has 12 layers: stages of 2, 3, 4, 6 or 12 of them.
layouts=(
  "base-pp2-m8 2 --pp 2 -m 8"
  "pp2-m16 2 --pp 2 -m 16"
  "pp2-vp2-m8 2 --pp 2 --vp 2 --schedule interleaved --p2p separate -m 8"
  "gpipe-pp2-m8 2 --pp 2 --schedule gpipe -m 8"
  "pp3-m6 3 --pp 3 -m 6"
  "pp3-m12 3 --pp 3 -m 12"
  "pp4-m8 4 --pp 4 -m 8"
  "pp4-m16 4 --pp 4 -m 16"
  "gpipe-pp4-m8 4 --pp 4 --schedule gpipe -m 8"
  "pp3-vp2-m6 3 --pp 3 --vp 2 --schedule interleaved --p2p separate -m 6"
  "pp2-dp2-m4 4 --pp 2 --dp 2 -m 4"
)
common=(--num-layers 12 --hidden-size "$hidden" --num-attention-heads 4 --seq-length 64 --micro-batch-size 4
  --train-iters "$steps" --eval-iters 0 --backend gloo -q)

echo "cores: $(nproc), load before: $(cut -d' ' -f1-3 /proc/loadavg)"
records=()
for layout in "${layouts[@]}"; do
  read -r name ranks flags <<<"$layout"
  # shellcheck disable=SC2086
  "$plumbline" run $flags "${common[@]}" --nproc "$ranks" -o "$out/$name.plmb" >"$out/$name.log" 2>&1 ||
    { echo "calibration: $name failed:" >&2; cat "$out/$name.log" >&2; exit 1; }
  records+=("$out/$name.plmb")
done
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
"$plumbline" calibrate "${records[@]}" -o "$out/calibrated.toml"
