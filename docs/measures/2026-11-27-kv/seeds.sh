#!/usr/bin/env bash
# seeds.sh PROGRAM OUT: `sim kv` with SEEDS (10,000) seeds each of 3 and 5 nodes; one line for each workload and number of nodes
# in OUT/seeds.txt. PROGRAM is a release build.
set -u
program=$1
out=$2
seeds=${SEEDS:-10000}
mkdir -p "$out"
for nodes in 3 5; do
    for workload in register list-append; do
        log=$out/sim-$nodes-$workload.txt
        began=$SECONDS
        "$program" sim kv --nodes "$nodes" --workload "$workload" --seeds $((seeds / 2)) --out "$out/sim-$nodes-$workload" \
            >"$log" 2>&1
        status=$?
        echo "$(date +%T) nodes=$nodes workload=$workload status=$status $((SECONDS - began)) s | $(tail -n 1 "$log")" \
            >>"$out/seeds.txt"
    done
done
