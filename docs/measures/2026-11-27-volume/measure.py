#!/usr/bin/env python3
"""Rates of the volume beside nbdkit's file plugin and qemu's quorum over three qemu-nbd, by fio's nbd engine.

measure.py SEATRIAL FOLDER OUT.csv [ROUNDS [SECONDS]]

All servers run at the same time, idle but for the one that is measured; each round measures every server with every job, one
after the other, so that rows of a round are close in time. CPU is that of all processes of a server, from /proc.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import time

SIZE = 1 << 30
JOBS = [  # name, fio's rw, bytes, depth, further options
    ("4K random write", "randwrite", 4096, 25, []),
    ("4K random read", "randread", 4096, 25, []),
    ("1M random write", "randwrite", 1 << 20, 25, []),
    ("1M random read", "randread", 1 << 20, 25, []),
    ("4M random write", "randwrite", 4 << 20, 25, []),
    ("4M random read", "randread", 4 << 20, 25, []),
    ("4K write, flush", "randwrite", 4096, 1, ["--fsync=1"]),
]
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, name, socket, processes):
        self.name, self.socket, self.processes = name, socket, processes

    def uri(self):
        return f"nbd+unix:///?socket={self.socket}"

    def cpu(self):
        """Seconds of CPU of all its processes."""
        total = 0
        for process in self.processes:
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def memory(self):
        """Most megabytes that its processes held."""
        total = 0
        for process in self.processes:
            for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1]) / 1000
        return total


def start(*words):
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(path):
    for _ in range(600):
        if os.path.exists(path):
            return
        time.sleep(0.05)
    sys.exit(f"{path} did not appear")


def volume(seatrial, folder):
    disk = folder / "disk"
    ports = ",".join(f"127.0.0.1:{port}" for port in (7591, 7592, 7593))
    subprocess.run([seatrial, "volume", "create", disk, "--size", str(SIZE), "--addresses", ports], check=True,
                   stdout=subprocess.DEVNULL)
    processes = [start(seatrial, "volume", "downstairs", disk, "--node", number) for number in (1, 2, 3)]
    socket = disk / "nbd"
    processes.append(start(seatrial, "volume", "attach", disk, "--nbd", f"unix:{socket}"))
    wait_for(socket)
    return Server("seatrial", socket, processes)


def image(path):
    with open(path, "wb") as file:
        file.truncate(SIZE)
    return path


def nbdkit(folder):
    socket = folder / "nbdkit"
    process = start("nbdkit", "-f", "-U", socket, "file", image(folder / "nbdkit.img"))
    wait_for(socket)
    return Server("nbdkit file", socket, [process])


def quorum(folder):
    processes, options = [], ["driver=quorum", "vote-threshold=2"]
    for number in range(3):
        socket = folder / f"qemu-{number}"
        processes.append(start("qemu-nbd", "-f", "raw", "-t", "-e", "8", "-k", socket, image(folder / f"qemu-{number}.img")))
        wait_for(socket)
        options += [f"children.{number}.driver=nbd", f"children.{number}.server.type=unix",
                    f"children.{number}.server.path={socket}"]
    socket = folder / "quorum"
    processes.append(start("qemu-nbd", "-t", "-e", "8", "-k", socket, "--image-opts", ",".join(options)))
    wait_for(socket)
    return Server("qemu quorum", socket, processes)


def fio(server, job, seconds):
    name, rw, length, depth, more = job
    words = ["fio", "--name=job", "--ioengine=nbd", f"--uri={server.uri()}", f"--rw={rw}", f"--bs={length}", f"--iodepth={depth}",
             "--time_based", f"--runtime={seconds}", "--randrepeat=0", "--norandommap", "--refill_buffers",
             "--output-format=json", *more]
    before = server.cpu()
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    cpu = server.cpu() - before
    result = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    side = result["read" if "read" in rw else "write"]
    latency = side["clat_ns"]["percentile"]
    return {
        "operations_per_second": round(side["iops"], 1),
        "mebibytes_per_second": round(side["bw_bytes"] / (1 << 20), 1),
        "p50_us": round(latency["50.000000"] / 1000),
        "p99_us": round(latency["99.000000"] / 1000),
        "server_cpu_us_per_operation": round(cpu * 1e6 / max(side["total_ios"], 1), 1),
    }


def main():
    seatrial, folder, out = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    seconds = int(sys.argv[5]) if len(sys.argv) > 5 else 5
    folder.mkdir(parents=True)
    servers = []
    try:
        servers = [volume(seatrial, folder), nbdkit(folder), quorum(folder)]
        for server in servers:  # the same bytes everywhere: no job reads a block that was never written
            subprocess.run(["fio", "--name=fill", "--ioengine=nbd", f"--uri={server.uri()}", "--rw=write", "--bs=1M", "--iodepth=8",
                            f"--size={SIZE}", "--end_fsync=1"], check=True, stdout=subprocess.DEVNULL)
        with open(out, "w", newline="") as file:
            rows = None
            for turn in range(1, rounds + 1):
                for job in JOBS:
                    for server in servers:
                        row = {"round": turn, "job": job[0], "server": server.name, **fio(server, job, seconds),
                               "load": round(os.getloadavg()[0], 1), "server_memory_mb": round(server.memory())}
                        if rows is None:
                            rows = csv.DictWriter(file, row.keys(), lineterminator="\n")
                            rows.writeheader()
                        rows.writerow(row)
                        file.flush()
                        print(*row.values(), flush=True)
    finally:
        for server in servers:
            for process in reversed(server.processes):
                process.terminate()


main()
