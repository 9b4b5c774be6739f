//! Work in std's collections: maps, sorts with closures, formatting. Argument: how often.

use std::collections::BTreeMap;

fn main() {
    let rounds: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    for _ in 0..rounds {
        let mut map: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for i in 0..100_000u64 {
            map.entry(format!("{}", i % 5000)).or_default().push(i * i);
        }
        let mut all: Vec<_> = map.into_iter().collect();
        all.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
        println!("{}", all.iter().map(|(k, v)| format!("{k}{}", v.len())).collect::<String>().len());
    }
}
