#!/usr/bin/env bash
# All farms of random histories, one after another, each against a twin that tries all orders, or with every certificate verified:
# `farms.sh [COUNT]` from the workspace (200,000 histories of each; simulated databases of up to 300 transactions a hundredth of that).
# Prints a line for each: name, histories, processor seconds, and what cargo said. A farm that fails names its seed.
set -euo pipefail
count=${1:-200000}
TIMEFORMAT='%U + %S s'

# farm NAME COUNT CARGO-TEST-ARGUMENTS...
farm() {
  local name=$1 histories=$2 said
  shift 2
  # Built before it is timed.
  cargo test --quiet "$@" --no-run 2>/dev/null || true
  said=$({ time SEATRIAL_HISTORIES=$histories cargo test --quiet "$@" -- --test-threads 1; } 2>&1) || { echo "$said"; exit 1; }
  echo "| $name | $histories | $(tail -1 <<<"$said") | $(grep '^test result' <<<"$said" | grep -v ' 0 passed' | cut -d';' -f1 | tail -1) |"
}

checker=(-p seatrial-checker)
echo "| farm | histories | processor time | said |"
echo "| --- | --- | --- | --- |"
farm "decisions against all orders of commits and versions" $((count * 3 / 2)) "${checker[@]}" --lib decision::tests
farm "lists against all serial orders" "$count" "${checker[@]}" --test all transactions::agrees_with_all_serial_orders
farm "lists: certificates" "$count" "${checker[@]}" --test all transactions::verdicts_come_with_certificates
farm "lists: windows against judged at once" "$count" "${checker[@]}" --test all windows::
farm "registers against all orders" "$count" "${checker[@]}" --test all registers::
farm "weak levels against all orders of commits, and their certificates" "$count" "${checker[@]}" --test all isolation::
farm "timestamps against a replay by hand" "$count" "${checker[@]}" --lib timestamps::
farm "simulated databases, ten models, certificates; orders from outside" $((count / 100)) "${checker[@]}" --test all decision::
