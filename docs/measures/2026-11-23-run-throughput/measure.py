#!/usr/bin/env python3
"""measure.py BINARY SECONDS [WORDS...]: one run of the bundled store without faults and without pace.

Prints operations a second, and the processor time of bench and node per operation while there was load
(/proc/PID/stat of both, sampled every 20 ms; the first and the last half second are left out)."""
import os, re, shutil, subprocess, sys, tempfile, time
binary, seconds, words = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
folder = tempfile.mkdtemp() + "/run"
command = [binary, "test", "kv", "--workload", "list-append", "--concurrency", "100", "--rate", "100000000",
           "--faults", "none", "--time", str(seconds), "--seed", "7", "--out", folder, "--quiet"] + words
bench = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
tick = os.sysconf("SC_CLK_TCK")
def cpu(pid):
    try:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / tick
    except OSError:
        return None
def child():
    for task in os.listdir(f"/proc/{bench.pid}/task"):
        try:
            pids = open(f"/proc/{bench.pid}/task/{task}/children").read().split()
        except OSError:
            continue
        if pids:
            return pids[0]
node, samples = None, []
while bench.poll() is None:
    try:
        node = node or child()
        samples.append((time.time(), cpu(bench.pid), cpu(node) if node else None))
    except OSError:
        pass
    time.sleep(0.02)
out = bench.stdout.read()
match = re.search(r"([\d,]+) operations .* ([\d,]+)/s", out)
rate = float(match.group(2).replace(",", ""))
loaded = [s for s in samples if s[1] is not None and s[2] is not None]
inside = [s for s in loaded if loaded[0][0] + 1.0 < s[0] < loaded[0][0] + seconds - 0.5]
a, b = inside[0], inside[-1]
wall = b[0] - a[0]
ops = rate * wall
print(f"{os.path.basename(binary)}: {rate:.0f} op/s, bench {(b[1]-a[1])/ops*1e6:.1f} us/op, node {(b[2]-a[2])/ops*1e6:.1f} us/op, "
      f"both {(b[1]-a[1]+b[2]-a[2])/wall:.2f} cores; load {os.getloadavg()[0]:.1f}; exit {bench.returncode}; {'; '.join(l.strip() for l in out.splitlines() if '✓' in l or '✗' in l)[:90]}")
shutil.rmtree(os.path.dirname(folder))
