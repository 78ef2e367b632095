#!/usr/bin/env bash
# usage: measure.sh FOLDER   (from the root of the repository; builds what it needs)
# Makes families B and R, judges each three times, and prints processor seconds (user + system, the whole process) and peak memory.
set -euo pipefail
folder=$1; mkdir -p "$folder"
cargo build --release -q -p seatrial
seatrial=target/release/seatrial
make() { # FILE TRANSACTIONS KEYS OPTIONS…
    local file=$folder/$1 count=$2 keys=$3
    [ -e "$file" ] || "$seatrial" generate rw-register --ops $((2 * count)) --concurrency 20 --keys "$keys" \
        --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths --fail 0 --info 0 --quiet \
        "${@:4}" -o "$file"
}
judge() { # FILE MODEL
    for _ in 1 2 3; do
        python3 - "$seatrial" "$folder/$1" "$2" <<'PY'
import os, subprocess, sys, resource, json
seatrial, file, model = sys.argv[1:]
process = subprocess.Popen([seatrial, "check", "--checker", "isolation", "--model", model, "--json", *(["--format", "dbcop"] if file.endswith(".dbcop") else []), file], stdout=subprocess.PIPE)
answer = process.stdout.read()
_, status, usage = os.wait4(process.pid, 0)
document = json.loads(answer)
details = document["checkers"]["isolation"]["details"]
work = " ".join(f"{name} {details[name]}" for name in ("unsettled", "pairs", "clauses", "steps"))
print(f"{os.path.basename(file):24} {model:36} {str(document['valid']):8} {usage.ru_utime + usage.ru_stime:8.2f} s {usage.ru_maxrss // 1024:6} MB  {work}")
PY
    done
}
for count in 4000 16000 32000 100000 1000000; do
    make "b-$count.sea" "$count" 10000
    judge "b-$count.sea" serializable
    judge "b-$count.sea" strict-serializable
    judge "b-$count.sea" snapshot-isolation
done
make r-32000.sea 32000 10000 --read-before-write
for model in serializable snapshot-isolation strict-serializable; do judge r-32000.sea "$model"; done
# Few keys, and no times at all.
for keys in 10 40; do
    make "b-4000-$keys.sea" 4000 "$keys"
    judge "b-4000-$keys.sea" serializable
done
for count in 4000 16000; do
    make "b-$count.dbcop" "$count" 10000
    judge "b-$count.dbcop" strong-session-serializable
    judge "b-$count.dbcop" strong-session-snapshot-isolation
done
