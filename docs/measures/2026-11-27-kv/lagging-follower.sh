#!/bin/bash
# lagging-follower.sh PROGRAM SECONDS: three nodes under the load of 64 clients; a follower is stopped for that long, then it
# continues. Prints how many entries it is behind, each half second.
set -eu
program=$1; seconds=${2:-5}
folder=$(mktemp -d); nodes=()
trap 'kill "${nodes[@]}" 2> /dev/null || true; wait; rm -rf "$folder"' EXIT
address() { echo "127.0.0.1:753$1"; }
for node in 1 2 3; do
  peers=""
  for other in 1 2 3; do [ $other = $node ] || peers="$peers,n$other=$(address $other)"; done
  "$program" node kv --node $node --listen "$(address $node)" --peers "${peers:1}" --data "$folder/n$node" \
    > "$folder/n$node.log" 2>&1 &
  nodes+=($!)
done
sleep 2
all=$(address 1),$(address 2),$(address 3)
status() { timeout 5 "$program" kv status --timeout 1 --json --server "$all" || true; }
leader=$(status | grep -o '"node":"n[123]"[^}]*"role":"leader"' | grep -o 'n[123]' | head -1)
follower=$(( ${leader:1} % 3 + 1 ))
"$program" bench kv --server "$all" --clients 64 --time 22 --warm-up 2 --out "$folder/out" > "$folder/bench.txt" 2>&1 &
bench=$!
sleep 5
kill -STOP "${nodes[$((follower - 1))]}"; sleep "$seconds"; kill -CONT "${nodes[$((follower - 1))]}"
for _ in $(seq 16); do
  status | grep -o '"applied":[0-9]*' | cut -d: -f2 | sort -n | tr '\n' ' ' | awk '{print $3 - $1, "entries behind"}'
  sleep 0.5
done
wait $bench
head -2 "$folder/bench.txt"
grep -h "exceeds the maximum" "$folder"/n?.log | tail -1 || true
