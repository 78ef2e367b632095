"""Runs `seatrial test …` and prints its rate and the processor time of the bench and of the servers.

    python3 processor_time.py target/release/seatrial test redis --rate max --concurrency 50 …

The bench is the process of seatrial with all its threads: generator, clients, recorder, nemesis, switch. The servers are the
processes that descend from it. Both are read from /proc twice a second; what counts is the time between the first and the last
reading at which operations were completed, which excludes the start of the servers and the check.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")


def processes():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = open(f"/proc/{name}/stat").read()
            except OSError:
                continue
            fields = text.rsplit(")", 1)[1].split()
            found[int(name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK, text)
    return found


def reading(pid):
    all_processes = processes()
    if pid not in all_processes:
        return None
    servers, waiting = 0.0, [pid]
    while waiting:
        parent = waiting.pop()
        for child, (its_parent, used, _) in all_processes.items():
            if its_parent == parent:
                servers += used
                waiting.append(child)
    return time.monotonic(), all_processes[pid][1], servers


def main():
    out = f"/tmp/processor-time-{os.getpid()}"
    words = sys.argv[1:] + ["--out", out, "--json"]
    printed = tempfile.TemporaryFile()
    bench = subprocess.Popen(words, stdout=printed, stderr=subprocess.DEVNULL)
    readings = []
    while bench.poll() is None:
        now = reading(bench.pid)
        if now and now[2] > 0:
            readings.append(now)
        time.sleep(0.5)
    printed.seek(0)
    results = json.loads(printed.read())
    attributes = json.loads(subprocess.run(
        [sys.argv[1], "show", "--attributes", out], capture_output=True, check=False).stdout or "{}")
    # The middle of the run: the servers have started, and the check has not begun.
    length = attributes.get("seconds") or 10
    middle = [one for one in readings if one[0] - readings[0][0] > 2.0][: int(2 * (length - 3))]
    first, last = middle[0], middle[-1]
    wall = last[0] - first[0]
    rate = results["operations"] / length
    bench_share, server_share = ((last[at] - first[at]) / wall for at in (1, 2))
    print(json.dumps({
        "command": " ".join(sys.argv[2:]),
        "valid": results["valid"],
        "operations": results["operations"],
        "ok": results["counts"]["ok"],
        "per_second": round(rate),
        "bench_cores": round(bench_share, 3),
        "server_cores": round(server_share, 3),
        "bench_us_per_op": round(bench_share / rate * 1e6, 2),
        "server_us_per_op": round(server_share / rate * 1e6, 2),
        "checked_in_s": results.get("checked_in"),
        "limit": results.get("limit"),
        "load_average": os.getloadavg()[0],
    }))
    subprocess.run(["rm", "-rf", out], check=False)


main()
