"""numpy and pandas: groups, joins, and functions of Python that they call."""

import numpy as np
import pandas as pd

random = np.random.default_rng(1)
table = pd.DataFrame(
    {"key": random.integers(0, 200, 60000), "value": random.random(60000), "name": [str(i % 97) for i in range(60000)]}
)
for _ in range(3):
    groups = table.groupby("key")
    groups["value"].apply(lambda values: values.max() - values.min())
    groups.agg({"value": ["mean", "std"], "name": lambda names: names.iloc[0]})
    table.merge(table.groupby("name")["value"].sum().reset_index(), on="name")
    table["value"].map(lambda value: value**1.5 + 1).rolling(50).mean()
    table["name"].str.cat(table["name"]).str.contains("1.*2")
    np.apply_along_axis(lambda row: np.sort(row)[:3].sum(), 1, table["value"].to_numpy().reshape(-1, 20))
