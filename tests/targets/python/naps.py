"""Naps of 0.3 s, in one thread after the other. Writes for each its thread, its begin and its end, in ns since 1970."""
import threading, time


def naps():
    # For others to find out that it is there.
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    for _ in range(3):
        begin = time.time_ns()
        time.sleep(0.3)
        print(threading.get_native_id(), begin, time.time_ns(), flush=True)


for _ in range(3):
    thread = threading.Thread(target=naps)
    thread.start()
    thread.join()
