"""A thousand Python threads that work a little and sleep, and one that watches for stalls. Writes its CPU seconds, and
the longest and the median time in ms that a nap of one ms took, to the file argv[1]."""

import resource
import statistics
import sys
import threading
import time

end = time.monotonic() + 6


def work(number):
    while time.monotonic() < end:
        sum(i * i for i in range(200 + number % 50))
        time.sleep(0.25)


threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(1000)]
for thread in threads:
    thread.start()
naps = []
while time.monotonic() < end:
    begin = time.monotonic()
    time.sleep(0.001)
    naps.append((time.monotonic() - begin) * 1000)
for thread in threads:
    thread.join()
used = resource.getrusage(resource.RUSAGE_SELF)
with open(sys.argv[1], "w") as out:
    print(used.ru_utime + used.ru_stime, max(naps), statistics.median(naps), file=out)
