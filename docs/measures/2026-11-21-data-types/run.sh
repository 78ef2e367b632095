#!/bin/sh
# usage: run.sh SEATRIAL FOLDER
# Writes a history of each workload (simulated store, kills and pauses) and has each of its checkers judge it. Prints rows of:
# workload, checker, operations of the history, user and system seconds, peak memory in KiB, keys or logs.
set -eu
seatrial=$1
folder=$2
judge() {
    workload=$1 checker=$2 history=$3 count=$4
    /usr/bin/time -o "$folder/time" -f '%U,%S,%M' "$seatrial" check "$history" --checker "$checker" --json > "$folder/verdict" || true
    valid=$(sed -n 's/^  "valid": \(.*\),$/\1/p' "$folder/verdict" | head -1)
    echo "$workload,$checker,$count,$(cat "$folder/time"),$valid"
}
echo workload,checker,operations,user,system,KiB,valid
for count in 100000 1000000; do
    for workload in register set queue counter bank unique-ids long-fork monotonic mutex lock log; do
        out=$folder/$workload-$count
        "$seatrial" sim kv --workload "$workload" --seed 1 --ops $((count / 2)) --faults kill,pause --concurrency 10 --quiet --out "$out" > /dev/null
        history=$out/history.sea
        case $workload in
            register) checkers=cas-register ;;
            set) checkers='set set-full' ;;
            queue) checkers='queue total-queue' ;;
            mutex) checkers=lock ;;
            *) checkers=$workload ;;
        esac
        for checker in stats $checkers; do
            judge "$workload" "$checker" "$history" "$count"
        done
    done
done
