//! Functions, for formats that have a table of them: frames that differ in the executing line only are one function.

use crate::stacks::{Kind, Line, Profile};
use std::collections::HashMap;

/// The functions of a profile.
pub struct Functions<'a> {
    /// A frame of each function.
    pub list: Vec<&'a Line>,
    /// Index in `list` for each of [`Profile::lines`].
    of_line: Vec<u32>,
}

impl<'a> Functions<'a> {
    /// Functions are equal if name, file and kind are; an inlined function is that which was not inlined.
    pub fn new(profile: &'a Profile) -> Functions<'a> {
        let mut known: HashMap<(&str, &str, Kind), u32> = HashMap::new();
        let mut list = Vec::new();
        let of_line = profile.lines.iter().map(|line| {
            let kind = if line.kind == Kind::Inlined { Kind::Native } else { line.kind };
            let next = list.len() as u32;
            *known.entry((&line.function, &line.file, kind)).or_insert_with(|| {
                list.push(line);
                next
            })
        });
        let of_line = of_line.collect();
        Functions { list, of_line }
    }

    /// The function of a frame, given by its index in [`Profile::lines`].
    pub fn of(&self, line: u32) -> u32 {
        self.of_line.get(line as usize).copied().unwrap_or(0)
    }
}
