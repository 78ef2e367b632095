#!/usr/bin/env bash
# Acknowledged additions to a set that Redis lost to kills alone, while another process writes and syncs to the same disk.
# usage: [FSYNCS="everysec"] kills.sh SEATRIAL FOLDER OUT.csv
set -eu
seatrial=$1 folder=$2 out=$3
mkdir "$folder"
for writer in 1 2 3 4; do
  (while :; do dd if=/dev/zero of="$folder/load$writer" bs=1M count=400 conv=fsync status=none || exit; done) &
done
trap 'kill $(jobs -p); wait; rm -rf "$folder"' EXIT
echo "fsync,seed,status,acknowledged,lost" >"$out"
for seed in 1 2 3; do
  for fsync in ${FSYNCS:-always everysec no}; do
    found=0
    "$seatrial" test redis --workload set --fsync "$fsync" --faults kill --interval 1.5 --rate 2000 --time 12 --seed "$seed" \
      --out "$folder/run" --json >"$folder/json" 2>/dev/null || found=$?
    python3 - "$folder/json" "$fsync" "$seed" "$found" <<'P' | tee -a "$out"
import json, sys
result = json.load(open(sys.argv[1]))
details = result["checkers"]["set-full"]["details"]
lost = details["lost"]
print(",".join(str(it) for it in [*sys.argv[2:5], result["counts"]["ok"], lost if isinstance(lost, int) else len(lost)]))
P
    rm -rf "$folder/run"
  done
done
