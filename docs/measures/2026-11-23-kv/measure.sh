#!/usr/bin/env bash
# measure.sh BENCH NODES OUT: the runs of this page. BENCH is the load generator, NODES the program whose nodes it starts.
set -u
bench="$1 bench kv --binary $2"
out=$3
uptime; $bench --experiment e12 --time 8 --warm-up 2 --out "$out/disk"
uptime; $bench --experiment e4 --time 8 --warm-up 2 --out "$out/disk"
uptime; $bench --experiment e1 --keys 65536 --time 20 --out "$out/disk"
uptime; $bench --experiment e9 --out "$out/disk"
uptime; $bench --experiment e10 --time 18 --warm-up 2 --out "$out/disk"
uptime; python3 "$(dirname "$0")/sync_probe.py" /tmp
uptime; $bench --experiment e4 --time 5 --warm-up 2 --data /dev/shm/bench --out "$out/memory"
uptime; $bench --experiment e12 --time 8 --warm-up 2 --out "$out/again"
uptime
