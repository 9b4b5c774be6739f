"""Prints what is compiled into what is shipped: sbom.py VERSION PACKAGE...

In CycloneDX (https://cyclonedx.org/docs/1.5/json/), with the checksums of Cargo.lock, by which cargo has verified what
it compiled.
"""

import json
import os
import re
import sys
import time
import uuid

from crates import reached

version = sys.argv[1]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Cargo.lock"), encoding="utf-8") as lock:
    entry = r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"'
    checksums = {(name, of): checksum for name, of, checksum in re.findall(entry, lock.read())}

components = []
for package in reached(sys.argv[2:]):
    if package["source"] is None:
        continue  # the project's own
    name, of = package["name"], package["version"]
    components.append(
        {
            "type": "library",
            "bom-ref": "pkg:cargo/%s@%s" % (name, of),
            "name": name,
            "version": of,
            "purl": "pkg:cargo/%s@%s" % (name, of),
            "licenses": [{"expression": package["license"].replace("/", " OR ")}],
            "hashes": [{"alg": "SHA-256", "content": checksums[name, of]}],
        }
    )
date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    # By what it says, so that two builds say the same.
    "serialNumber": "urn:uuid:%s" % uuid.uuid5(uuid.NAMESPACE_URL, version + date + json.dumps(components)),
    "version": 1,
    "metadata": {
        "timestamp": date,
        "component": {"type": "application", "bom-ref": "uunwind", "name": "uunwind", "version": version},
    },
    "components": components,
}
print(json.dumps(document, indent=1))
