#!/usr/bin/env bash
# Losses of power under SQLite and Redis, by setting: matrix.sh SEATRIAL TIMES > matrix.txt
# Needs root, loop devices, mkfs.xfs and redis-server. Each line: setting, run, exit status (0 valid, 1 lost), verdict.
set -u
seatrial=$1
common=(--workload set --disk xfs --faults disk:all --fault-schedule one-at-a-time --interval 4 --time 15)
try() {
  local name=$1 run out status
  shift
  for run in $(seq "$times"); do
    out=$(mktemp --directory --dry-run)
    "$seatrial" test "$@" "${common[@]}" --seed "$run" --out "$out" >/dev/null 2>&1
    status=$?
    printf '%-28s run %s  exit %s  ' "$name" "$run" "$status"
    python3 -c '
import json, sys
document = json.load(open(sys.argv[1]))
print(document["valid"], document["anomalies"] or "")
' "$out/results.json"
    rm -rf "$out"
  done
}
times=$2
for fsync in no everysec always; do try "redis $fsync" redis --rate 2000 --fsync "$fsync"; done
for journal in wal delete truncate persist; do
  for synchronous in off normal full extra; do
    try "sqlite $journal $synchronous" sqlite --nodes 1 --journal-mode "$journal" --pragma-synchronous "$synchronous"
  done
done
