#!/usr/bin/env bash
# measure.sh PROGRAM OUT: the runs of this page. PROGRAM is a release build of seatrial; redis-server and etcd are installed.
# PREFIX="chrt -r 1" measure.sh ...: all stores and clients in the class of real-time threads, see README.md.
set -u
program=$1
out=$2
data=$(mktemp -d -p "${DATA:-/tmp}")
bench() {
    uptime
    ${PREFIX:-} "$program" bench kv --data "$data/stores" "$@"
}
mkdir -p "$out"
{
    for round in 1 2 3; do
        bench --experiment e12 --time 6 --warm-up 2 --out "$out/round-$round"
    done
    bench --experiment e1 --time 30 --warm-up 2 --out "$out"
    bench --keys 262144 --time 35 --warm-up 2 --out "$out/share-20" \
        --node-options "--checkpoint-share 20 --checkpoint-bytes 1080033280"
    bench --experiment e5 --time 5 --warm-up 1 --out "$out"
    bench --experiment e6 --time 6 --warm-up 2 --out "$out"
    bench --experiment e7 --out "$out"
    bench --experiment e8 --out "$out"
    bench --experiment e9 --out "$out"
    bench --experiment e9 --keys 1310720 --out "$out/five"
    bench --experiment e11 --seeds 200 --out "$out"
    bench --keys 2621440 --time 40 --warm-up 2 --out "$out/ten" \
        --node-options "--log none --checkpoint-bytes 11500000000"
    uptime
} >"$out/runs.txt" 2>&1
rm -r "$data"
