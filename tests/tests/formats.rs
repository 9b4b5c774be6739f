//! The formats of a report agree: each is read by an independent reader, and the weights are the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, uu};

fn recording(scratch: &Path) -> uu::Recording {
    let program = compile::gcc(scratch, "family", &["native/family.c"], &[]);
    uu::record(scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0)
}

fn weight_of_samples(recording: &uu::Recording) -> u64 {
    recording.samples().iter().map(|s| s.weight).sum()
}

#[test]
fn folded_lines_have_a_stack_and_a_weight() {
    let scratch = paths::scratch("folded");
    let recording = recording(&scratch);
    let folded = recording.report("folded");
    let mut total = 0;
    let mut leaves: BTreeMap<String, u64> = BTreeMap::new();
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').expect("a stack and a weight");
        let weight: u64 = weight.parse().expect("the weight is a number");
        total += weight;
        for name in
            ["parent_work", "forked_work", "exec_work"].into_iter().filter(|n| stack.split(';').any(|f| f == *n))
        {
            *leaves.entry(name.to_owned()).or_insert(0) += weight;
            assert!(stack.contains(&format!("main;{name};burn")), "outermost first: {line}");
        }
    }
    assert_eq!(total, weight_of_samples(&recording));
    assert_eq!(leaves.len(), 3, "{folded}");
}

#[test]
fn the_flame_graph_is_well_formed_and_names_the_functions() {
    let scratch = paths::scratch("svg");
    let recording = recording(&scratch);
    let svg = scratch.join("x.svg");
    std::fs::write(&svg, recording.report("svg")).expect("scratch");
    // An XML parser that is not ours; titles are what a browser shows for each box.
    let program = "import sys, xml.etree.ElementTree as t\nr = t.parse(sys.argv[1]).getroot()\nassert r.tag.endswith('svg'), r.tag\n\
        print(*[e.text for e in r.iter() if e.tag.endswith('title')], sep='\\n')";
    let done = Command::new("python3").args(["-c", program]).arg(&svg).output().expect("python3 runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let titles = String::from_utf8_lossy(&done.stdout).into_owned();
    for name in ["parent_work", "forked_work", "exec_work", "burn", "main"] {
        assert!(titles.lines().any(|l| l.split(' ').next() == Some(name)), "{name} is not in {titles}");
    }
}

/// Reads a protobuf message: (field, wire type 0 value or the bytes of wire type 2).
fn fields(mut bytes: &[u8]) -> Vec<(u64, Result<u64, &[u8]>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        found.push(match key & 7 {
            0 => (key >> 3, Ok(value)),
            2 => {
                let (body, rest) = bytes.split_at(value as usize);
                bytes = rest;
                (key >> 3, Err(body))
            }
            other => panic!("wire type {other} is not in profile.proto"),
        });
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a varint ends inside its message");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes")
}

/// By the public profile.proto: 2 sample (1 location ids, 2 values), 4 location (1 id), 5 function (2 name), 6 strings.
#[test]
fn pprof_is_gzipped_profile_proto_with_the_same_weight() {
    let scratch = paths::scratch("pprof");
    let recording = recording(&scratch);
    let packed = scratch.join("x.pb.gz");
    let words = ["report".as_ref(), recording.file.as_os_str(), "-o".as_ref(), packed.as_os_str()];
    let done = uu::command(&scratch, &words).output().expect("uu runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let plain = Command::new("gzip").arg("-dc").arg(&packed).output().expect("gzip runs").stdout;
    let profile = fields(&plain);
    let messages =
        |field| profile.iter().filter(move |(f, _)| *f == field).map(|(_, v)| v.expect_err("a message or text"));
    let packed_numbers = |mut body: &[u8]| {
        let mut numbers = Vec::new();
        while !body.is_empty() {
            numbers.push(varint(&mut body));
        }
        numbers
    };
    let strings: Vec<String> = messages(6).map(|b| String::from_utf8_lossy(b).into_owned()).collect();
    assert_eq!(strings.first().map(String::as_str), Some(""), "the string table begins with the empty string");
    let locations: Vec<u64> =
        messages(4).filter_map(|l| fields(l).iter().find(|f| f.0 == 1).and_then(|f| f.1.ok())).collect();
    let mut sums: Vec<u64> = Vec::new();
    for sample in messages(2) {
        for (field, value) in fields(sample) {
            let numbers = value.map_or_else(packed_numbers, |n| vec![n]);
            if field == 1 {
                assert!(numbers.iter().all(|id| locations.contains(id)), "a location that is not defined");
            } else if field == 2 {
                sums.resize(sums.len().max(numbers.len()), 0);
                sums.iter_mut().zip(&numbers).for_each(|(s, n)| *s += n);
            }
        }
    }
    // One of the values is the number of samples, or the time that they stand for, in ns.
    let samples = recording.samples();
    let weight: u64 = samples.iter().map(|s| s.weight).sum();
    let count = samples.len() as u64;
    let near = |n: u64, wanted: u64| n.abs_diff(wanted) <= wanted / 100;
    assert!(sums.iter().any(|n| *n == weight || *n == count), "{sums:?}: neither {weight} ticks nor {count} samples");
    let time = weight * 1_000_000_000 / 999;
    assert!(sums.iter().any(|n| near(*n, time)), "{sums:?}: no value is the time, {time} ns");
    let names: Vec<&String> = messages(5)
        .filter_map(|f| fields(f).iter().find(|f| f.0 == 2).and_then(|f| f.1.ok()))
        .map(|at| &strings[at as usize])
        .collect();
    for name in ["parent_work", "forked_work", "exec_work", "burn", "main"] {
        assert!(names.iter().any(|n| *n == name), "{name} is not among {names:?}");
    }
}
