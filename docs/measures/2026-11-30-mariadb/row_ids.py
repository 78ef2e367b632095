#!/usr/bin/env python3
"""MariaDB gives a hidden row id twice after a crash, and the second row replaces the first.

row_ids.py FOLDER [MARIADBD]: makes a server's data in the new FOLDER, then holds, with gdb, the thread that is about to log the
counter of row ids; other sessions insert and commit; the server is killed and started again, and more rows are inserted.
Needs mariadbd (x86-64), mariadb-install-db, mariadb, gdb, objdump, and the right to trace a process.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

PORT = 29531


def place(program):
    """Where dict_sys_t::get_new_row_id, which is inlined, goes when the id is divisible by 256."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"lock xadd %(\w+),0x\w+\(%r\w+\)\n[^\n]*\ttest   %\1b,%\1b\n[^\n]*\tje     (\w+) ", listing)
    assert len(found) == 1, f"{program}: {len(found)} places look like get_new_row_id"
    return int(found[0][1], 16)


class Server:
    def __init__(self, program, folder):
        self.folder = folder
        user = ["--user=root"] if os.geteuid() == 0 else []
        self.command = [program, "--no-defaults", f"--datadir={folder}", f"--port={PORT}", "--bind-address=127.0.0.1", "--socket=",
            f"--pid-file={folder}.pid", "--skip-grant-tables", "--skip-networking=0", "--innodb-flush-log-at-trx-commit=1"] + user
        if not folder.exists():
            subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={folder}", "--auth-root-authentication-method=normal"]
                + user, check=True, stdout=subprocess.DEVNULL)
        self.start()

    def start(self):
        with open(f"{self.folder}.log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        for _ in range(300):
            if subprocess.run(client("select 1"), capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise SystemExit(f"mariadbd does not answer; see {self.folder}.log")

    def kill(self):
        self.process.kill()
        self.process.wait()


def client(sql):
    return ["mariadb", "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", f"--port={PORT}", "--batch", "--skip-column-names",
        "--user=root", "--database=test", "--execute", sql]


def ask(sql):
    return subprocess.run(client(sql), check=True, capture_output=True, text=True).stdout.split()


def hold(server, address):
    """gdb, which stops only the thread that comes to the place."""
    start = next(int(line.split("-")[0], 16) for line in open(f"/proc/{server.process.pid}/maps") if server.command[0] in line)
    gdb = subprocess.Popen(["gdb", "--quiet", "--nx", "-p", str(server.process.pid), "-iex", "set debuginfod enabled off",
        "-iex", "set non-stop on", "-iex", "set auto-solib-add off"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    # Threads stop one by one; all of them go on once all have stopped.
    for command in f"break *{hex(start + address)}\n", "continue -a &\n":
        time.sleep(3)
        gdb.stdin.write(command)
        gdb.stdin.flush()
    time.sleep(1)
    return gdb


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    program = os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else "/usr/sbin/mariadbd")
    folder.mkdir(parents=True)
    server = Server(program, folder / "data")
    print(ask("select version()")[0])
    ask("create table t (v bigint not null) engine=InnoDB")
    gdb = hold(server, place(program))

    # One row at a time, until an insert does not end: its thread is held.
    number = 0
    while True:
        number += 1
        insert = subprocess.Popen(client(f"insert into t values ({number})"))
        try:
            insert.wait(3)
        except subprocess.TimeoutExpired:
            break
    print(f"row {number} is being inserted: its thread is held before it logs its row id")
    last = number + 3
    for value in range(number + 1, last + 1):
        ask(f"insert into t values ({value})")
    print(f"rows {number + 1} to {last} are acknowledged; there are {ask('select count(*) from t')[0]} rows")
    server.kill()
    gdb.stdin.close()
    gdb.terminate()
    insert.wait()
    server.start()
    print(f"killed and started again: {ask('select count(*) from t')[0]} rows")
    for value in range(last + 1, last + 9):
        before = set(ask("select v from t"))
        ask(f"insert into t values ({value})")
        after = set(ask("select v from t"))
        lost = ", ".join(sorted(before - after))
        print(f"row {value} is acknowledged: {len(after)} rows" + (f"; row {lost} is gone" if lost else ""))
    print("check table:", " ".join(ask("check table t")))
    server.kill()


if __name__ == "__main__":
    main()
