//! Waits for locks in recordings (`--mode lock`), above all of `native/contends.c`.

use serde_json::Value;
use std::collections::BTreeMap;

/// Functions of the program, and what they wait for.
pub const WAITS: [(&str, &str); 8] = [
    ("for_mutex", "mutex"),
    ("for_mutex_a_while", "mutex"),
    ("for_read", "read lock"),
    ("for_write", "write lock"),
    ("for_semaphore", "semaphore"),
    ("for_barrier", "barrier"),
    ("for_futex", "futex"),
    ("for_condition", "condition variable"),
];

/// What the program says of itself: a line's first word, and the numbers after it.
pub fn said<'l>(lines: impl Iterator<Item = &'l str>) -> BTreeMap<String, Vec<u64>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        Some((name, words.map(|word| word.parse().expect("a number")).collect()))
    };
    lines.filter_map(line).collect()
}

/// A wait of a recording.
pub struct Wait {
    /// What for.
    pub what: String,
    /// The lock's address.
    pub lock: u64,
    /// In ns.
    pub duration: u64,
    /// The thread that had the lock.
    pub holder: Option<u64>,
    /// The stack, leaf first.
    pub functions: Vec<String>,
}

/// Those of a recording, which `uu report -f json` has written.
pub fn read(json: &str) -> Vec<Wait> {
    let json: Value = serde_json::from_str(json).expect("JSON");
    let one = |wait: &Value| {
        let sample = &json["samples"][wait["sample"].as_u64().expect("an index") as usize];
        let stack = &json["stacks"][sample["stack"].as_u64().expect("an index") as usize];
        let frames = stack["frames"].as_array().expect("frames").iter();
        let function = |frame: &Value| {
            json["frames"][frame.as_u64().expect("an index") as usize]["function"].as_str().unwrap_or("").to_owned()
        };
        Wait {
            what: wait["what"].as_str().expect("text").to_owned(),
            lock: wait["lock"]
                .as_str()
                .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
                .expect("an address"),
            duration: wait["duration"].as_u64().expect("ns"),
            holder: wait["holder"].as_u64(),
            functions: frames.map(function).collect(),
        }
    };
    json["lock_waits"].as_array().expect("waits").iter().map(one).collect()
}

/// Those of a function.
pub fn within<'w>(waits: &'w [Wait], function: &'w str) -> impl Iterator<Item = &'w Wait> {
    waits.iter().filter(move |wait| wait.functions.iter().any(|name| name == function))
}

/// Each wait of the program is there once, as long as it has measured, with its stack, its kind and the holder.
#[track_caller]
pub fn expect_measured(waits: &[Wait], said: &BTreeMap<String, Vec<u64>>) {
    let holder = said["holder"][0];
    for (function, what) in WAITS {
        let [rounds, least, most] = said[function][..] else { panic!("{:?}", said[function]) };
        let of_kind: Vec<&Wait> = within(waits, function).filter(|wait| wait.what == what).collect();
        assert_eq!(of_kind.len() as u64, rounds, "{function}");
        let total: u64 = of_kind.iter().map(|wait| wait.duration).sum();
        assert!((least..=most).contains(&total), "{function}: {total}, not from {least} to {most}");
        let expected = (what == "mutex" || function == "for_read" || function == "for_write").then_some(holder);
        assert!(of_kind.iter().all(|wait| wait.holder == expected), "{function}");
        for wait in of_kind {
            let stack = &wait.functions;
            let waits = stack.iter().position(|name| name == "waits").unwrap_or_else(|| panic!("{stack:?}"));
            assert_eq!(stack[..=waits].last().map(String::as_str), Some("waits"));
            // The frames of uu's own functions are not shown.
            assert_eq!(stack[0], function, "{stack:?}");
        }
    }
}
