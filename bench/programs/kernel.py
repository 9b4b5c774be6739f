"""A notebook, run by a Jupyter kernel in a process of its own."""

import nbclient
import nbformat

cells = [
    "import math, re, collections\ndef primes(n):\n"
    "    return [i for i in range(2, n) if all(i % k for k in range(2, int(math.sqrt(i)) + 1))]",
    "len(primes(60000))",
    "counts = collections.Counter(re.findall(r'[a-z]+', ' '.join(str(primes(2000))) * 40))\ncounts.most_common(3)",
    "%timeit -n 20 -r 3 sorted(primes(4000), key=lambda p: -p)",
]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, timeout=600).execute()
assert notebook.cells[1].outputs[0]["data"]["text/plain"] == "6057", notebook.cells[1].outputs
