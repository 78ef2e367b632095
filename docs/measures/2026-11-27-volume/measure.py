#!/usr/bin/env python3
"""Figures of the volume: beside nbdkit's file plugin and qemu's quorum over three qemu-nbd, and while replicas and its owner fail.

measure.py SEATRIAL FOLDER OUT.csv table [ROUNDS [SECONDS [JOBS]]]   rates by fio's nbd engine, all servers in turn
measure.py SEATRIAL FOLDER OUT.csv pairs [SECONDS]                   write and flush, beside files on the same disk
measure.py SEATRIAL FOLDER OUT.csv native [SECONDS]                  the volume's own requests, beside NBD
measure.py SEATRIAL FOLDER OUT.csv activation [TIMES]                attach again after kill -9 of a writing owner
measure.py SEATRIAL FOLDER OUT.csv outage [TIMES]                    a replica killed under load and started 0.3 s later
measure.py SEATRIAL FOLDER OUT.csv repair [SECONDS]                  writes a second before, during and after a repair
measure.py SEATRIAL FOLDER OUT.csv cost [TIMES]                      CPU of a repaired block, without guests meanwhile
measure.py SEATRIAL FOLDER OUT.csv steady [SECONDS]                  1 MiB writes, second by second

The volume and the images have GIB GiB (environment, 1). FOLDER is made, must be on the disk to measure, and is removed. `table`:
all servers run at the same time, idle but for the one that is measured; each round measures every server with every job, one after
the other, so that rows of a round are close in time. CPU is that of all processes of a server, from /proc. JOBS selects jobs that
contain a text, such as "4K random".
"""

import csv
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

SIZE = int(os.environ.get("GIB", "1")) << 30
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

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


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
    processes.append(attach(seatrial, disk))
    wait_for(disk / "nbd")
    return Server("seatrial", disk / "nbd", processes)


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


def fill(uri):
    """Writes every block once: no job reads a block that was never written."""
    subprocess.run(["fio", "--name=fill", "--ioengine=nbd", f"--uri={uri}", "--rw=write", "--bs=1M", "--iodepth=8", f"--size={SIZE}",
                    "--end_fsync=1"], check=True, stdout=subprocess.DEVNULL)


class Rows:
    """Rows of a CSV file, printed as they come."""

    def __init__(self, path):
        self.file, self.writer = open(path, "w", newline=""), None

    def add(self, **row):
        row["load"] = round(os.getloadavg()[0], 1)
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, row.keys(), lineterminator="\n")
            self.writer.writeheader()
        self.writer.writerow(row)
        self.file.flush()
        print(*row.values(), flush=True)


def table(seatrial, folder, rows, rounds=3, seconds=5, only=""):
    servers = []
    try:
        servers += [volume(seatrial, folder), nbdkit(folder), quorum(folder)]
        for server in servers:
            fill(server.uri())
        for turn in range(1, int(rounds) + 1):
            for job in JOBS:
                if only in job[0]:
                    for server in servers:
                        rows.add(round=turn, job=job[0], server=server.name, **fio(server, job, int(seconds)),
                                 server_memory_mb=round(server.memory()))
    finally:
        for server in servers:
            server.end()


def pairs(seatrial, folder, rows, seconds=5):
    server = volume(seatrial, folder)
    try:
        fill(server.uri())
        files = [open(folder / f"raw-{number}", "w+b", buffering=0) for number in range(3)]
        for file in files:
            for _ in range(64):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
        for turn in range(3):
            figures = fio(server, JOBS[-1], int(seconds))
            rows.add(round=turn + 1, what="volume, three replicas", pairs_per_second=figures["operations_per_second"])
            for count in (1, 3):
                rate = raw_pairs(files[:count], int(seconds))
                rows.add(round=turn + 1, what=f"{count} files, a sync of each", pairs_per_second=round(rate, 1))
    finally:
        server.end()


def raw_pairs(files, seconds):
    """Pairs a second of 4 KiB written to each file at a random place, and a sync of all of them at once."""
    block, barrier, has_ended = os.urandom(4096), threading.Barrier(len(files) + 1), threading.Event()

    def run(file):
        while True:
            barrier.wait()
            if has_ended.is_set():
                return
            os.pwrite(file.fileno(), block, random.randrange(64 << 8) * 4096)
            os.fdatasync(file.fileno())
            barrier.wait()

    threads = [threading.Thread(target=run, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    begun, done = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        barrier.wait()
        barrier.wait()
        done += 1
    elapsed = time.monotonic() - begun
    has_ended.set()
    barrier.wait()
    for thread in threads:
        thread.join()
    return done / elapsed


def native(seatrial, folder, rows, seconds=3):
    server = volume(seatrial, folder)
    disk = folder / "disk"
    try:
        fill(server.uri())
        words = ["--overwrite", "--workloads", "random-read,random-write", "--lengths", "4KiB,1MiB", "--time", seconds]
        for turn in range(3):
            for way, more in (("nbd", []), ("native", ["--native"])):
                if way == "native":
                    server.processes[-1].terminate()
                    server.processes[-1].wait()
                out = folder / "bench.csv"
                run(seatrial, "volume", "bench", disk, *words, *more, "--csv", out)
                for row in csv.DictReader(open(out)):
                    rows.add(round=turn + 1, way=way, workload=row["workload"], bytes=row["bytes"],
                             operations_per_second=row["operations_per_second"])
                if way == "native":
                    server.processes[-1] = attach(seatrial, disk)
                    until_attached(disk)
    finally:
        server.end()


def run(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def attach(seatrial, disk):
    return start(seatrial, "volume", "attach", disk, "--nbd", f"unix:{disk / 'nbd'}")


def until_attached(disk):
    """Waits until an NBD client is greeted."""
    for _ in range(60_000):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(disk / "nbd"))
                client.settimeout(5)
                if client.recv(16):
                    return
            except OSError:
                pass
        time.sleep(0.001)
    sys.exit("the volume is not attached")


def status(seatrial, disk):
    done = subprocess.run([seatrial, "volume", "status", disk, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}


def load(server, seconds, log=None):
    """4 KiB random writes, depth 25, for some seconds, in the background."""
    words = ["fio", "--name=job", "--ioengine=nbd", f"--uri={server.uri()}", "--rw=randwrite", "--bs=4k", "--iodepth=25", "--time_based",
             f"--runtime={seconds}", "--randrepeat=0", "--norandommap"]
    if log:
        words += [f"--write_iops_log={log}", "--log_avg_msec=1000"]
    return start(*words)


def activation(seatrial, folder, rows, times=5):
    server = volume(seatrial, folder)
    disk = folder / "disk"
    try:
        fill(server.uri())
        for turn in range(int(times)):
            guest = load(server, 60)
            time.sleep(2)
            server.processes[-1].kill()
            server.processes[-1].wait()
            begun = time.monotonic()
            server.processes[-1] = attach(seatrial, disk)
            until_attached(disk)
            rows.add(round=turn + 1, seconds_until_attached=round(time.monotonic() - begun, 3))
            guest.kill()
            guest.wait()
    finally:
        server.end()


def replica(seatrial, disk, number):
    return start(seatrial, "volume", "downstairs", disk, "--node", number)


def until_active(seatrial, disk, repairs=0):
    """Waits until all replicas have everything, and n2 has begun more repairs than this; returns the status of n2 then."""
    for _ in range(6_000):
        replicas = status(seatrial, disk).get("replicas", [])
        if replicas and all(it["state"] == "active" for it in replicas) and replicas[1]["repairs"] > repairs:
            return replicas[1]
        time.sleep(0.01)
    sys.exit("a replica is not repaired")


def writes_a_second(seatrial, disk, what):
    """Writes of guests a second while `what` runs."""
    first, begun = status(seatrial, disk)["writes"], time.monotonic()
    what()
    return (status(seatrial, disk)["writes"] - first) / (time.monotonic() - begun)


def others_repairs(seatrial, disk):
    """Repairs of the replicas that are not killed."""
    return sum(it["repairs"] for it in status(seatrial, disk)["replicas"] if it["node"] != "n2")


def outage(seatrial, folder, rows, times=5):
    server = volume(seatrial, folder)
    disk = folder / "disk"
    try:
        fill(server.uri())
        guest = load(server, 120)
        time.sleep(3)
        for turn in range(int(times)):
            before = until_active(seatrial, disk, -1)
            others = others_repairs(seatrial, disk)
            usual = writes_a_second(seatrial, disk, lambda: time.sleep(2))
            server.processes[1].kill()
            server.processes[1].wait()
            time.sleep(0.3)
            begun = time.monotonic()
            server.processes[1] = replica(seatrial, disk, 2)
            found = {}
            during = writes_a_second(seatrial, disk, lambda: found.update(until_active(seatrial, disk, before["repairs"])))
            rows.add(round=turn + 1, seconds_until_repaired=round(time.monotonic() - begun, 3),
                     blocks=found["repaired_blocks"] - before["repaired_blocks"], replays=found.get("replays", 0),
                     writes_per_second=round(usual), during_repair_percent=round(100 * during / usual),
                     repairs_of_others=others_repairs(seatrial, disk) - others)
            time.sleep(2)
        guest.kill()
        guest.wait()
    finally:
        server.end()


def repair(seatrial, folder, rows, seconds=10):
    server = volume(seatrial, folder)
    disk, log = folder / "disk", folder / "writes"
    try:
        fill(server.uri())
        guest = load(server, 3 * int(seconds) + 5, log)
        begun = time.monotonic()
        time.sleep(int(seconds))
        server.processes[1].kill()
        server.processes[1].wait()
        killed = time.monotonic() - begun
        time.sleep(3)
        before = status(seatrial, disk)["replicas"][1]["repairs"]
        server.processes[1] = replica(seatrial, disk, 2)
        back = time.monotonic() - begun
        until_active(seatrial, disk, before)
        repaired = time.monotonic() - begun
        guest.wait()
        for line in open(f"{log}_iops.1.log"):
            at, rate = [int(field) for field in line.split(",")[:2]]
            at /= 1000
            phase = "three replicas" if at < killed or at > repaired + 1 else "two replicas" if at < back else "repair"
            rows.add(second=at, phase=phase, writes_per_second=rate)
        print(f"killed at {killed:.1f} s, back at {back:.1f} s, repaired at {repaired:.1f} s")
    finally:
        server.end()


def cost(seatrial, folder, rows, times=3):
    """Writes 120 MiB in blocks of 4 KiB while a replica is away; CPU of all processes for a written and for a repaired block."""
    server = volume(seatrial, folder)
    disk, written = folder / "disk", 30_720
    try:
        fill(server.uri())
        for turn in range(int(times)):
            before = until_active(seatrial, disk, -1)
            time.sleep(1)
            away = server.processes.pop(1)
            away.kill()
            away.wait()
            idle = server.cpu()
            subprocess.run(["fio", "--name=job", "--ioengine=nbd", f"--uri={server.uri()}", "--rw=randwrite", "--bs=4k", "--iodepth=25",
                            "--io_size=120m", "--size=1g", "--randrepeat=0", "--norandommap", "--end_fsync=1"], check=True,
                           stdout=subprocess.DEVNULL)
            writes = server.cpu() - idle
            time.sleep(1)
            idle, begun = server.cpu(), time.monotonic()
            server.processes.insert(1, replica(seatrial, disk, 2))
            blocks = until_active(seatrial, disk, before["repairs"])["repaired_blocks"] - before["repaired_blocks"]
            seconds, repair = time.monotonic() - begun, server.cpu() - idle
            rows.add(round=turn + 1, seconds=round(seconds, 2), blocks=blocks, repair_cpu_us_per_block=round(repair / blocks * 1e6, 1),
                     write_cpu_us_per_block_on_two_replicas=round(writes / written * 1e6, 1))
    finally:
        server.end()


def steady(seatrial, folder, rows, seconds=36):
    """1 MiB random writes, second by second: after some 15 s the log has its full length, and slots in use are moved."""
    server = volume(seatrial, folder)
    seconds = int(seconds)
    try:
        fill(server.uri())
        log = folder / "steady"
        guest = start("fio", "--name=job", "--ioengine=nbd", f"--uri={server.uri()}", "--rw=randwrite", "--bs=1M", "--iodepth=25",
                      "--time_based", f"--runtime={seconds}", "--randrepeat=0", "--norandommap", "--refill_buffers",
                      f"--write_bw_log={log}", "--log_avg_msec=1000")
        cpu = [server.cpu()]
        for _ in range(seconds):
            time.sleep(1)
            cpu.append(server.cpu())
        guest.wait()
        rates = [int(line.split(",")[1]) / 1024 for line in (folder / "steady_bw.1.log").read_text().splitlines()]
        for second, rate in enumerate(rates[:seconds]):
            used = cpu[second + 1] - cpu[second]
            rows.add(second=second + 1, mebibytes_per_second=round(rate), server_cpu_ms_per_mebibyte=round(used * 1000 / max(rate, 1), 2))
    finally:
        server.end()


def main():
    seatrial, folder, out, what = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3], sys.argv[4]
    ways = {"table": table, "pairs": pairs, "native": native, "activation": activation, "outage": outage, "repair": repair, "cost": cost,
            "steady": steady}
    folder.mkdir(parents=True)
    try:
        ways[what](seatrial, folder, Rows(out), *sys.argv[5:])
    finally:
        shutil.rmtree(folder)


main()
