"""Allocates much: dictionaries, texts and lists, by the interpreter and by the C code of json. Prints a check and the
CPU time that it has used, in seconds."""

import json
import resource
import sys

kept, total = [], 0
for number in range(int(sys.argv[1]) * 2000):
    item = {"id": number, "name": "item %d" % number, "x": [float(n) for n in range(20)], "text": "b" * 600}
    kept.append(json.loads(json.dumps(item)))
    total += len(kept[-1]["text"] + bytes(700).hex())
    if len(kept) > 2000:
        kept.clear()
used = resource.getrusage(resource.RUSAGE_SELF)
print(total, used.ru_utime + used.ru_stime)
