"""What `uu agent` costs: N services that do little, half of them in C and half in Python, at 19 Hz.

    python3 bench/agent.py TREE [N...]

Each service works for about a millisecond, five times (C) or ten times (Python) a second. Printed for each N: the CPU
time of the agent and of the helpers that it has waited for, as a share of one CPU, over 60 s; its memory (PSS), of
which that of memory files is shared with the services; what beginning took; the CPU time of the services with the
agent, relative to that without it, over the same time; and the memory files of a service, those of its sampler's
object, rings and rule tables, by what all such files of the machine have more."""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

SECONDS = 60
C = """
#include <unistd.h>
static volatile unsigned long sink;
int main(void) { for (;;) { for (int i = 0; i < 1000000; i++) sink += i; usleep(200000); } }
"""
PYTHON = """
import time
def work():
    return sum(range(20000))
while True:
    work()
    time.sleep(0.1)
"""
TICK = os.sysconf("SC_CLK_TCK")


class Store(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def cpu(pid):
    """CPU time of a process and of the children that it has waited for, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def memory(pid):
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if "kB" in line}
    return values["Pss"], values["Pss_Anon"], values["Pss_Shmem"]


def shmem():
    """Memory of all memory files of the machine, in MiB."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Shmem:"))


def status(uu, socket):
    done = subprocess.run([uu, "agent", "status", "--json", "--socket", socket], capture_output=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"processes": []}


def measure(uu, count, folder, url):
    native, script = folder / "service", folder / "service.py"
    commands = [[str(native)], [sys.executable, str(script)]]
    services = [subprocess.Popen(commands[index % 2]) for index in range(count)]
    try:
        time.sleep(5)
        used = lambda: sum(cpu(service.pid) for service in services)
        before = used()
        time.sleep(SECONDS)
        alone = used() - before
        config, socket = folder / "agent.toml", str(folder / "agent.sock")
        config.write_text(
            f'[push]\nurl = "{url}"\n[agent]\nrate = 19\ncpu = 100\nmemory = "3G"\nprocesses = {count}\n'
            f'[[rule]]\nservice = "bench"\ncommand = "*{folder}/service*"\n'
        )
        files = shmem()
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        agent = subprocess.Popen(
            [uu, "agent", "-c", config, "--socket", socket], env=environment, stderr=subprocess.DEVNULL
        )
        begun = time.monotonic()
        while sum(entry["how"] != "begins" for entry in status(uu, socket)["processes"]) < count:
            time.sleep(0.2)
        beginning = (time.monotonic() - begun, cpu(agent.pid))
        time.sleep(30)
        before, own = used(), cpu(agent.pid)
        time.sleep(SECONDS)
        share = (cpu(agent.pid) - own) / SECONDS * 100
        ratio = (used() - before) / alone
        pss, anonymous, shared = memory(agent.pid)
        files = shmem() - files
        sent = status(uu, socket)["push"]
        agent.terminate()
        agent.wait()
        print(
            f"{count:4} services: {share:5.2f} % of a CPU, {pss:4.0f} MiB ({anonymous:.0f} its own, {shared:.0f} of "
            f"shared memory files), begun within {beginning[0]:.1f} s for {beginning[1]:.1f} s of CPU time, "
            f"{sent['sent']} profiles ({sent['samples']} samples); services {ratio:.3f}; memory files "
            f"{files / count:.2f} MiB a service",
            flush=True,
        )
    finally:
        for service in services:
            service.kill()
            service.wait()


def main():
    uu = f"{sys.argv[1]}/bin/uu"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="uu-bench-agent-") as name:
        folder = pathlib.Path(name)
        (folder / "service.c").write_text(C)
        (folder / "service.py").write_text(PYTHON)
        subprocess.run(["gcc", "-O2", "-o", folder / "service", folder / "service.c"], check=True)
        for count in map(int, sys.argv[2:] or ["50", "200"]):
            measure(uu, count, folder, f"http://127.0.0.1:{server.server_port}")


main()
