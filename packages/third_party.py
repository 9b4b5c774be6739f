"""Prints the licences of everything that is compiled into what is shipped: third_party.py PACKAGE...

Each licence file once.
"""

import os
import sys

from crates import reached

texts = {}
print(
    "Compiled into uu and its objects, besides Rust's standard library "
    "(MIT or Apache-2.0, The Rust Project Contributors;"
)
print("it names its own parts in https://github.com/rust-lang/rust/blob/master/COPYRIGHT):\n")
for package in reached(sys.argv[1:]):
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
