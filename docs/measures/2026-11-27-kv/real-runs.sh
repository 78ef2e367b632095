#!/usr/bin/env bash
# real-runs.sh PROGRAM OUT SECONDS: runs of `test kv` with all faults, one after the other, until SECONDS have passed; one line
# for each in OUT/runs.txt. TIME: seconds of load of a run (120). Folders of runs that are not valid stay in OUT.
set -u
program=$1
out=$2
end=$((SECONDS + $3))
mkdir -p "$out"
workloads=(register cas-register list-append rw-register set total-queue counter bank log lock)
nodes=(3 5 3 3 5 1 7)
# A node that lost its journal cannot be replaced while another one has left: corruption and membership take turns.
faults=(kill,pause,partition,packet,clock,disk,corruption kill,pause,partition,packet,clock,disk,membership)
run=${FIRST:-0}
while [ $SECONDS -lt "$end" ]; do
    workload=${workloads[run % ${#workloads[@]}]}
    count=${nodes[run % ${#nodes[@]}]}
    kinds=${faults[run % 2]}
    # Both need others that have the data.
    [ "$count" -ge 3 ] || kinds=kill,pause,partition,packet,clock
    seed=$(printf '%x' $((0xa110 + run)))
    folder=$out/run-$run
    rm -rf "$folder"
    "$program" test kv --workload "$workload" --nodes "$count" --faults "$kinds" --time "${TIME:-120}" --seed "$seed" \
        --checkpoint-bytes $((65536 << (run % 5))) --out "$folder" >"$out/run-$run.txt" 2>&1
    status=$?
    summary=$(grep -m1 -E 'operations' "$out/run-$run.txt" | tr -s ' ')
    verdict=$(grep -m1 -E '✓|✗|\?|error' "$out/run-$run.txt" | tr -s ' ')
    echo "$(date +%T) run=$run workload=$workload nodes=$count seed=$seed status=$status$summary |$verdict" >>"$out/runs.txt"
    if [ $status -eq 0 ]; then rm -rf "$folder" "$out/run-$run.txt"; fi
    run=$((run + 1))
done
