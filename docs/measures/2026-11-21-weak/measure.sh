#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER` from the workspace, files go into FOLDER.
set -eu
folder=$1
mkdir -p "$folder"
target=${CARGO_TARGET_DIR:-target}/release
cargo build --quiet --release -p seatrial-checker --example family --example isolation

# family NAME OPTIONS...: a file of family W.
family() {
  local file="$folder/$1.txt"
  shift
  [ -f "$file" ] || "$target/examples/family" W "$@" > "$file"
}

# judge NAME MODEL RUNS: processor seconds (user, system) and peak KB of the whole process.
judge() {
  echo "== $1 $2"
  for _ in $(seq "$3"); do
    /usr/bin/time -f '%U + %S s, %M KB' \
      "$target/examples/isolation" "$2" < "$folder/$1.txt" 2>&1 >/dev/null | tail -1
  done
}

family w-1e6 1000000 plume
family w-1e6-sessions 1000000 plume --by-session
family w-1e6-broken 1000000 plume --violate
family w-3e6 3000000 plume
family w-1e7 10000000 plume
family w-1e7-broken 10000000 plume --violate
family w-1e5-318 100000 plume --sessions 318 --keys 2000
family w-1e5-318-broken 100000 plume --sessions 318 --keys 2000 --violate
for model in axiomatic-read-committed axiomatic-read-atomic causal; do
  for file in w-1e6 w-1e6-sessions w-1e6-broken w-1e5-318 w-1e5-318-broken; do judge "$file" "$model" 5; done
  for file in w-1e7 w-1e7-broken; do judge "$file" "$model" 2; done
done
judge w-3e6 causal 3
for model in read-your-writes monotonic-reads monotonic-writes writes-follow-reads pram; do judge w-1e6 "$model" 3; done
