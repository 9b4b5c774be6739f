"""The crates that are compiled into what is shipped: as `cargo metadata` has them, without builds' and tests'.

crates.py PACKAGE... prints the project's own among them, a line each.
"""

import json
import subprocess
import sys


def reached(names):
    """Of these packages of the project and all that they need: their metadata, by name and version."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {
        node["id"]: [d["pkg"] for d in node["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    found = set()
    todo = [package["id"] for package in metadata["packages"] if package["name"] in names]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(needs[one])
    return sorted((packages[one] for one in found), key=lambda package: (package["name"], package["version"]))


if __name__ == "__main__":
    print("\n".join(package["name"] for package in reached(sys.argv[1:]) if package["source"] is None))
