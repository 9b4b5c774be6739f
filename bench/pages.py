#!/usr/bin/env python3
"""How long a browser needs to show a large page of uu's, beside a page with nothing on it.

  pages.py PAGE [ROUNDS]     PAGE: a file of the format html

Both are opened in turn in Chromium without a window, in real time. *Painted*: from the beginning of the navigation
until the flame graph is drawn; of the empty page, until its script runs. *CPU*: of the process that shows the page,
until two frames later. *Frames of a zoom*: times between the frames while a zoom into a box, and out again, is
animated; of the empty page, of as many frames that show nothing new."""

import http.server
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

EMPTY = (
    "<!DOCTYPE html><title>empty</title><script>document.documentElement.dataset.painted = performance.now()</script>"
)
# Says when the page was painted, in the address of a picture that it asks for.
REPORT = """<script>(async () => {
  const { dataset } = document.documentElement;
  while (!dataset.painted) await new Promise((done) => setTimeout(done, 2));
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  await frame();
  new Image().src = "http://127.0.0.1:PORT/painted/" + Math.round(dataset.painted);
  const flames = document.getElementById("flames"), times = [];
  const click = () => {
    const { left, top } = flames.getBoundingClientRect();
    flames.dispatchEvent(new MouseEvent("click", { bubbles: true, clientX: left + 100, clientY: top + 28 }));
  };
  const out = () => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  for (let turn = 0; turn < 10; turn++) {
    // An animation takes 160 ms.
    if (flames) (turn % 2 ? out : click)();
    for (let last = performance.now(), end = last + 160; last < end; ) {
      await frame();
      const now = performance.now();
      times.push((now - last).toFixed(1));
      last = now;
    }
    await new Promise((done) => setTimeout(done, 150));
  }
  new Image().src = "http://127.0.0.1:PORT/zoomed/" + times.join("-");
})()</script>"""


def renderer_cpu(browser):
    """CPU milliseconds of the busiest process that shows a page, of this browser's."""
    most = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as command, open(f"/proc/{pid}/stat") as stat:
                words, fields = command.read(), stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == browser and "--type=renderer" in words:
            most = max(most, (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK"))
    return most


def main():
    page, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    browser = next((name for name in ["chromium", "chromium-browser", "google-chrome"] if shutil.which(name)), None)
    if browser is None:
        sys.exit("skipped: no Chromium is installed")
    said = {"painted": threading.Event(), "zoomed": threading.Event()}
    numbers = {}

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            _, what, text = (self.path + "//").split("/")[:3]
            self.send_response(204)
            self.end_headers()
            if what in said:
                numbers[what] = [float(number) for number in text.split("-")]
                said[what].set()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    report = REPORT.replace("PORT", str(server.server_port))
    with open(page) as file:
        # The page's own policy lets it ask for nothing.
        large = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", file.read()) + report
    folder = tempfile.mkdtemp()
    results = {"an empty page": [], f"{os.path.basename(page)}, {len(large) / 1e6:.1f} MB": []}
    for name, text in zip(results, [EMPTY + report, large]):
        with open(os.path.join(folder, f"{len(name)}.html"), "w") as file:
            file.write(text)
    for _ in range(rounds):
        for name, result in results.items():
            for event in said.values():
                event.clear()
            options = [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--window-size=1300,900",
                "--remote-debugging-port=0",
            ]
            command = [browser, *options, f"--user-data-dir={folder}/profile", f"file://{folder}/{len(name)}.html"]
            child = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            if said["painted"].wait(120):
                cpu = renderer_cpu(child.pid)
                if said["zoomed"].wait(120):
                    result.append((numbers["painted"][0], cpu, numbers["zoomed"]))
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    shutil.rmtree(folder, ignore_errors=True)
    print(
        "\n### A large page in a browser\n\n| page | painted after, ms: median [least-greatest] | CPU, ms: median "
        "| frames of a zoom, ms: median, 95 of 100, greatest |\n|---|---|---|---|"
    )
    for name, result in results.items():
        times = sorted(time for time, *_ in result) or sys.exit(f"{name} was never painted")
        cpu = statistics.median(cpu for _, cpu, _ in result)
        frames = sorted(frame for *_, frames in result for frame in frames)
        print(
            f"| {name} | {statistics.median(times):.0f} [{times[0]:.0f}-{times[-1]:.0f}] | {cpu:.0f} "
            f"| {statistics.median(frames):.1f}, {frames[len(frames) * 95 // 100]:.1f}, {frames[-1]:.1f} |"
        )


if __name__ == "__main__":
    main()
