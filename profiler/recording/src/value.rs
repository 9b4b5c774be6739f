//! What the samples of a recording stand for. A mode of sampling has a kind of value; each kind is an entry of
//! [`KINDS`], and whoever shows, adds or compares recordings asks it and knows no mode. A sample's weight counts the
//! kind's smallest amounts: sampling periods of time, bytes, or events.

use crate::{Recording, Settings};

/// In what a kind of value is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time: a weight of 1 is a sampling period.
    Time,
    /// Time: a weight of 1 is a nanosecond.
    Nanoseconds,
    /// Memory: a weight of 1 is a byte.
    Bytes,
    /// Events: a weight of 1 is one of them.
    Count,
}

/// A kind of value.
#[derive(Debug, PartialEq, Eq)]
pub struct Value {
    /// The bit of `Settings::flags` by which a recording says that it has it; 0: it is what has none.
    flag: u32,
    /// In what it is measured.
    pub unit: Unit,
    /// In one word, as profiles of other formats name it.
    pub name: &'static str,
    /// For people, as what an amount is of: 0.5 s of CPU time.
    pub text: &'static str,
    /// For people, where one kind is named beside another.
    pub kind: &'static str,
    /// Before the word "profile".
    pub profile: &'static str,
    /// As the title of a picture.
    pub title: &'static str,
}

/// All kinds.
static KINDS: [Value; 4] = [
    Value { flag: 0, unit: Unit::Time, name: "cpu", text: "CPU time", kind: "CPU time", profile: "CPU", title: "CPU" },
    Value {
        flag: Settings::WALL,
        unit: Unit::Time,
        name: "wall",
        text: "threads' time",
        kind: "wall-clock time",
        profile: "Wall-clock",
        title: "Wall-clock time",
    },
    Value {
        flag: Settings::ALLOC,
        unit: Unit::Bytes,
        name: "space",
        text: "memory",
        kind: "allocations",
        profile: "Memory",
        title: "Memory",
    },
    Value {
        flag: Settings::LOCK,
        unit: Unit::Nanoseconds,
        name: "delay",
        text: "waiting for locks",
        kind: "waits for locks",
        profile: "Lock",
        title: "Waiting for locks",
    },
];

impl Unit {
    /// As profiles of other formats name it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Time | Unit::Nanoseconds => "nanoseconds",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        }
    }

    /// What a weight of 1 is, at this rate in Hz: in ns, bytes or events.
    pub fn least(self, rate: u32) -> u64 {
        match self {
            Unit::Time => 1_000_000_000 / u64::from(rate.max(1)),
            Unit::Bytes | Unit::Count | Unit::Nanoseconds => 1,
        }
    }

    /// A weight for people.
    pub fn amount(self, weight: u64, rate: u32) -> String {
        match self {
            Unit::Time => format!("{:.2} s", weight as f64 / f64::from(rate.max(1))),
            Unit::Nanoseconds if weight >= 10_000_000 => format!("{:.2} s", weight as f64 / 1e9),
            Unit::Nanoseconds => format!("{:.3} ms", weight as f64 / 1e6),
            Unit::Bytes if weight >= 1 << 20 => format!("{:.2} MiB", weight as f64 / f64::from(1 << 20)),
            Unit::Bytes if weight >= 1 << 10 => format!("{:.2} KiB", weight as f64 / f64::from(1 << 10)),
            Unit::Bytes => format!("{weight} bytes"),
            Unit::Count => weight.to_string(),
        }
    }
}

impl Recording {
    /// What its samples stand for.
    pub fn value(&self) -> &'static Value {
        // The first one has no flag, so that it is what a recording without one has.
        let of = |value: &&Value| self.settings.flags & value.flag == value.flag;
        KINDS.iter().rev().find(of).unwrap_or(&KINDS[0])
    }

    /// Whether another recording's samples stand for the same kind of value. The error says what both stand for.
    pub fn has_value_of(&self, other: &Recording) -> Result<(), String> {
        let (this, others) = (self.value(), other.value());
        if this == others {
            return Ok(());
        }
        let (this, others) = (this.kind, others.kind);
        Err(format!(
            "it is a recording of {others}, and another one of {this}: their samples stand for different values. Give \
             recordings of one --mode only"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: u32) -> Recording {
        let mut recording = Recording::default();
        recording.settings.flags = flags;
        recording
    }

    #[test]
    fn a_recording_says_by_its_flags_what_it_has() {
        for value in &KINDS {
            for other in [0, 1, 1 << 20] {
                assert_eq!(of(value.flag | other).value(), value, "{value:?}");
            }
            assert_eq!(KINDS.iter().filter(|one| one.flag == value.flag || one.name == value.name).count(), 1);
        }
        let why = of(0).has_value_of(&of(Settings::WALL)).expect_err("different kinds");
        assert!(why.contains("a recording of wall-clock time, and another one of CPU time"), "{why}");
        assert_eq!(of(Settings::WALL).has_value_of(&of(Settings::WALL | 1)), Ok(()));
    }

    #[test]
    fn a_weight_is_an_amount_of_its_unit() {
        for (unit, weight, least, text) in [
            (Unit::Time, 150, 10_000_000, "1.50 s"),
            (Unit::Bytes, 100, 1, "100 bytes"),
            (Unit::Bytes, 1536, 1, "1.50 KiB"),
            (Unit::Bytes, 5 << 19, 1, "2.50 MiB"),
            (Unit::Count, 7, 1, "7"),
            (Unit::Nanoseconds, 1_500_000_000, 1, "1.50 s"),
            (Unit::Nanoseconds, 1_500, 1, "0.002 ms"),
        ] {
            assert_eq!((unit.least(100), &*unit.amount(weight, 100)), (least, text), "{unit:?}");
        }
        assert_eq!(Unit::Time.least(0), 1_000_000_000);
    }
}
