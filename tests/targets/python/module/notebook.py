"""Runs cells in a Jupyter kernel, as a notebook does, and prints what that would show."""

import sys

from jupyter_client.manager import start_new_kernel

BURN = """
import signal, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))
%load_ext uunwind
"""
CELLS = [
    BURN,
    # Between cells, it is.
    "get_ipython().kernel.io_loop.add_callback(lambda: globals().update(between=signal.getsignal(signal.SIGINT)))",
    "print('SIGINT is ignored:', between == signal.SIG_IGN)",
    "%%uu\nburn(0.3)\nanswer = 42",
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\n%uu burn(0.3)",
    "print(answer)",
    "%uu -t burn(0.3)",
]


def show(message):
    content = message["content"]
    if message["msg_type"] == "stream":
        text = content["text"].strip()
        print("a summary" if text.startswith("CPU profile of ") and "burn" in text else text)
    elif message["msg_type"] == "display_data":
        page = content["data"]["text/html"]
        is_page = page.startswith("<div><iframe") and "&lt;/html&gt;" in page
        print("a page" if is_page and "ipykernel_launcher" in page else page[:300])
    elif message["msg_type"] == "error":
        print("\n".join(content["traceback"]))


manager, client = start_new_kernel(kernel_name="python3", startup_timeout=600)
try:
    for cell in CELLS:
        client.execute_interactive(cell, output_hook=show, timeout=600)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
sys.stdout.flush()
