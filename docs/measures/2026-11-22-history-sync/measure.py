"""The interpreter with its history synced every 0.8 s, and never, in turn: wall and processor time.

Usage: measure.py SYNCED NEVER ROUNDS OPERATIONS, two builds of `cargo bench -p seatrial-runner --bench interpreter` that
differ in SYNC_INTERVAL of crates/runner/src/recorder.rs alone. TMPDIR has to be on a real disk.
"""
import re
import resource
import statistics
import subprocess
import sys
import time

BINARIES = {"every 0.8 s": sys.argv[1], "never": sys.argv[2]}
ROUNDS, OPERATIONS = int(sys.argv[3]), sys.argv[4]
found = {name: [] for name in BINARIES}
for round in range(ROUNDS):
    names = list(BINARIES)
    for name in names if round % 2 == 0 else names[::-1]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [BINARIES[name], "100", OPERATIONS, "--bench"]
        output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rate = float(re.search(r"s: (\d+) operations/s", output).group(1))
        found[name].append((rate, cpu))
        print(f"{name}: {rate:.0f} operations/s, {cpu:.2f} s of processor time", flush=True)
print("\n| synced | operations/s, median (best) | processor time, median (least) |\n| --- | ---: | ---: |")
for name, runs in found.items():
    rates, times = [run[0] for run in runs], [run[1] for run in runs]
    print(f"| {name} | {statistics.median(rates):,.0f} ({max(rates):,.0f}) "
          f"| {statistics.median(times):.2f} s ({min(times):.2f}) |")
