"""Prints the licences of everything that is compiled into what is shipped: third_party.py PACKAGE...

The packages' dependencies as `cargo metadata` has them, without those of builds and tests; each licence file once.
"""

import json
import os
import subprocess
import sys

command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
needs = {
    node["id"]: [d["pkg"] for d in node["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
    for node in metadata["resolve"]["nodes"]
}
reached = set()
todo = [package["id"] for package in metadata["packages"] if package["name"] in sys.argv[1:]]
while todo:
    one = todo.pop()
    if one not in reached:
        reached.add(one)
        todo.extend(needs[one])

texts = {}
print(
    "Compiled into uu and its objects, besides Rust's standard library "
    "(MIT or Apache-2.0, The Rust Project Contributors;"
)
print("it names its own parts in https://github.com/rust-lang/rust/blob/master/COPYRIGHT):\n")
for package in sorted((packages[one] for one in reached), key=lambda p: (p["name"], p["version"])):
    if package["source"] is None:
        continue  # the project's own
    name = "%s %s" % (package["name"], package["version"])
    print("%s: %s, %s" % (name, package["license"], package["repository"] or ", ".join(package["authors"])))
    folder = os.path.dirname(package["manifest_path"])
    found = False
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file)
        if file.upper().startswith(
            ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
        ) and os.path.isfile(path):
            found = True
            with open(path, encoding="utf-8", errors="replace") as text:
                texts.setdefault(text.read().strip(), []).append("%s (%s)" % (name, file))
    if not found:
        print("    (has no licence file; its manifest names the licence)")
for text, owners in texts.items():
    print("\n%s\nOf %s:\n\n%s" % ("-" * 80, ", ".join(owners), text))
