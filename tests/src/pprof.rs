//! A reader of pprof, made from the published
//! [profile.proto](https://github.com/google/pprof/blob/main/proto/profile.proto): every field must be one of it, and
//! every reference lead to something.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::process::{Command, Stdio};

/// A profile.
#[derive(Debug, Default)]
pub struct Profile {
    /// Types of the values, as `type/unit`.
    pub types: Vec<String>,
    /// The sums of the values of each stack: function names, leaf first, with `;` between them.
    pub stacks: BTreeMap<String, Vec<u64>>,
    /// Wall-clock time of the start, in ns since 1970.
    pub time: u64,
    /// Its length, in ns.
    pub duration: u64,
}

impl Profile {
    /// The sum of one value over all stacks.
    pub fn sum(&self, value: usize) -> u64 {
        self.stacks.values().filter_map(|values| values.get(value)).sum()
    }

    /// Adds the values of another one.
    pub fn add(&mut self, other: &Profile) {
        for (stack, values) in &other.stacks {
            let sums = self.stacks.entry(stack.clone()).or_insert_with(|| vec![0; values.len()]);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
}

/// Decompresses by gzip(1).
///
/// # Panics
/// If that refuses the bytes.
#[track_caller]
pub fn gunzip(packed: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip");
    let mut child = gzip.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip runs");
    let (mut input, packed) = (child.stdin.take().expect("a pipe"), packed.to_vec());
    let writer = std::thread::spawn(move || input.write_all(&packed));
    let done = child.wait_with_output().expect("gzip ends");
    writer.join().expect("no panic").expect("gzip reads all");
    assert!(done.status.success(), "gzip refuses the profile");
    done.stdout
}

/// Reads a profile.
///
/// # Panics
/// Where it is not one.
#[track_caller]
pub fn read(plain: &[u8]) -> Profile {
    let all = fields(plain);
    let messages = |number: u64| all.iter().filter(move |f| f.number == number).map(|f| f.bytes());
    for field in &all {
        assert!((1..=15).contains(&field.number), "a profile has no field {}", field.number);
    }
    let strings: Vec<&str> = messages(6).map(|text| std::str::from_utf8(text).expect("UTF-8")).collect();
    assert_eq!(strings.first(), Some(&""), "the string table begins with the empty string");
    let text = |index: u64| *strings.get(index as usize).unwrap_or_else(|| panic!("no string {index}"));
    let types = messages(1).map(|value| format!("{}/{}", text(number(value, 1)), text(number(value, 2)))).collect();
    // Parca's store takes no others.
    for (kind, field) in [("mapping", 3), ("location", 4), ("function", 5)] {
        assert!(messages(field).map(|m| number(m, 1)).eq(1..=messages(field).count() as u64), "{kind} ids");
    }
    let functions: HashMap<u64, &str> = messages(5).map(|f| (number(f, 1), text(number(f, 2)))).collect();
    let mappings: Vec<u64> = messages(3).map(|mapping| number(mapping, 1)).collect();
    let location = |message| {
        let mapping = number(message, 2);
        assert!(mapping == 0 || mappings.contains(&mapping), "no mapping {mapping}");
        let lines = fields(message).into_iter().filter(|f| f.number == 4);
        let named = |line: Field<'_>| functions.get(&number(line.bytes(), 1)).copied().expect("a function");
        (number(message, 1), lines.map(named).collect::<Vec<&str>>().join(";"))
    };
    let locations: HashMap<u64, String> = messages(4).map(location).collect();
    let mut profile = Profile { types, ..Profile::default() };
    for sample in messages(2) {
        let ids = numbers(sample, 1);
        let names = ids.iter().map(|id| &**locations.get(id).unwrap_or_else(|| panic!("no location {id}")));
        let (stack, values) = (names.collect::<Vec<&str>>().join(";"), numbers(sample, 2));
        assert_eq!(values.len(), profile.types.len(), "a sample has a value of each type");
        for label in fields(sample).into_iter().filter(|f| f.number == 3) {
            assert!(!text(number(label.bytes(), 1)).is_empty(), "a label without a key");
            text(number(label.bytes(), 2));
        }
        profile.add(&Profile { stacks: BTreeMap::from([(stack, values)]), ..Profile::default() });
    }
    (profile.time, profile.duration) = (number(plain, 9), number(plain, 10));
    profile
}

/// A field of a message: its number, and its number or bytes.
struct Field<'m> {
    number: u64,
    value: Result<u64, &'m [u8]>,
}

impl<'m> Field<'m> {
    #[track_caller]
    fn bytes(&self) -> &'m [u8] {
        self.value.expect_err("a message or text")
    }
}

#[track_caller]
fn fields(mut message: &[u8]) -> Vec<Field<'_>> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Ok(varint(&mut message)),
            2 => {
                let len = varint(&mut message) as usize;
                let (bytes, rest) = message.split_at_checked(len).expect("a field within its message");
                message = rest;
                Err(bytes)
            }
            kind => panic!("a field of kind {kind}"),
        };
        all.push(Field { number: tag >> 3, value });
    }
    all
}

/// The number in a field; 0: it is not there.
#[track_caller]
fn number(message: &[u8], field: u64) -> u64 {
    fields(message).into_iter().find(|f| f.number == field).map_or(0, |f| f.value.expect("a number"))
}

/// A repeated number, packed or not.
#[track_caller]
fn numbers(message: &[u8], field: u64) -> Vec<u64> {
    let mut all = Vec::new();
    for field in fields(message).into_iter().filter(|f| f.number == field) {
        match field.value {
            Ok(number) => all.push(number),
            Err(mut packed) => {
                while !packed.is_empty() {
                    all.push(varint(&mut packed));
                }
            }
        }
    }
    all
}

#[track_caller]
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole varint");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return number;
        }
    }
    panic!("a varint of more than ten bytes")
}
