#!/usr/bin/env bash
# All farms of random histories, one after another, each against a twin that tries all orders, or with every certificate verified:
# `farms.sh [COUNT]` from the workspace (200,000 histories of each; simulated databases of up to 300 transactions a hundredth of that).
# Prints a line for each as soon as it is done: name, histories, processor seconds, and what cargo said. A farm that fails names its
# seed. Each is killed after LIMIT seconds (an hour), which is told as well; ONLY=WORD runs those whose names have it.
set -euo pipefail
count=${1:-200000}
limit=${LIMIT:-3600}
TIMEFORMAT='%U + %S s'
failed=0

# farm NAME COUNT CARGO-TEST-ARGUMENTS...
farm() {
  local name=$1 histories=$2 said
  shift 2
  [[ $name == *"${ONLY:-}"* ]] || return 0
  # Built before it is timed, and before the limit begins.
  cargo test --quiet "$@" --no-run
  echo "farms: $name, $histories histories" >&2
  if said=$({ time SEATRIAL_HISTORIES=$histories timeout -k 5 "$limit" cargo test --quiet "$@" -- --test-threads 1; } 2>&1); then
    echo "| $name | $histories | $(tail -1 <<<"$said") | $(grep '^test result' <<<"$said" | grep -v ' 0 passed' | cut -d';' -f1 | tail -1) |"
  else
    failed=1
    echo "$said" >&2
    echo "| $name | $histories | $(tail -1 <<<"$said") | FAILED, or killed after $limit s |"
  fi
}

isolation=(-p seatrial-isolation)
inference=(-p seatrial-inference)
echo "| farm | histories | processor time | said |"
echo "| --- | --- | --- | --- |"
farm "decisions against all orders of commits and versions" $((count * 3 / 2)) "${isolation[@]}" --lib decision::tests
farm "lists against all serial orders" "$count" "${inference[@]}" --test all transactions::agrees_with_all_serial_orders
farm "lists: certificates" "$count" "${inference[@]}" --test all transactions::verdicts_come_with_certificates
farm "lists: windows against the whole" "$count" "${inference[@]}" --test all windows::
farm "while it is recorded against afterwards" "$count" -p seatrial-check --test all online::
farm "registers against all orders" "$count" "${inference[@]}" --test all registers::
farm "registers: certificates, damaged ones too" "$count" "${inference[@]}" --test all proofs::
farm "weak levels against all orders of commits, and their certificates" "$count" "${isolation[@]}" --test all isolation::
farm "timestamps against a replay by hand" "$count" "${isolation[@]}" --lib timestamps::
farm "simulated databases, ten models, certificates; orders from outside" $((count / 100)) "${isolation[@]}" --test all decision::
farm "texts read the quick way against the usual one" "$count" -p seatrial-interchange --lib the_quick_way
farm "generators with a nemesis beside them against without" "$count" -p seatrial-generator --test all forks::
exit "$failed"
