//! Which object covered an address of a process at a time.

use crate::{Object, Recording, SecondMapping};
use std::collections::{HashMap, HashSet};

/// The objects of a recording, for lookups by address and time.
pub struct ObjectMap {
    /// By process: indices of its objects, sorted by (time, index).
    by_process: Vec<Vec<u32>>,
    /// By object: index of its canonical object.
    canonical: Vec<u32>,
    /// By process and address: the objects that cover it, in order of time.
    cache: HashMap<(u32, u64), Vec<u32>>,
    /// By process: its second mappings, sorted by time.
    second_mappings: HashMap<u32, Vec<SecondMapping>>,
}

impl ObjectMap {
    /// Sorts the objects of a recording.
    pub fn new(recording: &Recording) -> ObjectMap {
        let mut by_process = vec![Vec::new(); recording.processes.len()];
        let mut identities: HashMap<_, u32> = HashMap::new();
        let mut with_path: HashMap<u64, u32> = HashMap::new();
        let shared = shared_keys(recording);
        for (index, object) in recording.objects.iter().enumerate() {
            if let Some(list) = by_process.get_mut(object.process as usize) {
                list.push(index as u32);
            }
            identities.entry(identity(object, &shared)).or_insert(index as u32);
            if !object.path.is_empty() {
                with_path.entry(object.facts_key).or_insert(index as u32);
            }
        }
        // The path of a program's object is missing if its process ended at once; that of an equal object is used
        // instead.
        let canonical = |object: &Object| {
            let first = identities.get(&identity(object, &shared)).copied().unwrap_or(0);
            let pathless = recording.objects.get(first as usize).is_some_and(|o| o.path.is_empty());
            with_path.get(&object.facts_key).copied().filter(|_| pathless).unwrap_or(first)
        };
        let canonical = recording.objects.iter().map(canonical).collect();
        for list in &mut by_process {
            list.sort_by_key(|i| recording.objects.get(*i as usize).map_or(0, |o| o.time));
        }
        let mut second_mappings: HashMap<_, Vec<_>> = HashMap::new();
        for mapping in &recording.second_mappings {
            second_mappings.entry(mapping.process).or_default().push(*mapping);
        }
        second_mappings.values_mut().for_each(|of| of.sort_by_key(|mapping| mapping.time));
        ObjectMap { by_process, canonical, cache: HashMap::new(), second_mappings }
    }

    /// Index of the canonical object, which stands for all with the same identity: symbols are kept once for them. It
    /// has a path if one of them has.
    pub fn canonical(&self, object: u32) -> u32 {
        self.canonical.get(object as usize).copied().unwrap_or(object)
    }

    /// Index of the object that covered `address` in `process` at `time`: the latest one reported by then.
    ///
    /// A sample and the report of an object that the sample met first may have times in either order, since a handler
    /// takes its time before it walks. So if no object was reported by then, the first one reported later counts.
    pub fn find(&mut self, recording: &Recording, process: u32, address: u64, time: u64) -> Option<u32> {
        let covering = self.covering(recording, process, address);
        let seen = |i: &&u32| recording.objects.get(**i as usize).is_some_and(|o| o.time <= time);
        covering.iter().take_while(seen).last().or(covering.first()).copied()
    }

    /// The address in an object whose code a second mapping had at `address` in `process` at `time`. Objects come
    /// first: only for addresses that none covers.
    pub fn original(&self, process: u32, address: u64, time: u64) -> Option<u64> {
        let of = self.second_mappings.get(&process)?.iter();
        let seen = of.take_while(|mapping| mapping.time <= time);
        seen.filter(|mapping| (mapping.start..mapping.end).contains(&address)).last()?.original_of(address)
    }

    /// Every place, by canonical object and file address, that `address` had in `process` at some time: in the objects
    /// that covered it, or, if none did, in those that second mappings had there.
    pub fn places(&mut self, recording: &Recording, process: u32, address: u64) -> Vec<(u32, u64)> {
        let mut found = self.places_in_objects(recording, process, address);
        if found.is_empty() {
            let mappings = self.second_mappings.get(&process).map_or(&[][..], |list| list);
            let originals: HashSet<u64> = mappings.iter().filter_map(|m| m.original_of(address)).collect();
            for original in originals {
                found.extend(self.places_in_objects(recording, process, original));
            }
        }
        found
    }

    fn places_in_objects(&mut self, recording: &Recording, process: u32, address: u64) -> Vec<(u32, u64)> {
        let covering = self.covering(recording, process, address).to_vec();
        let place = |index: &u32| {
            let object = recording.objects.get(*index as usize)?;
            Some((self.canonical(*index), file_address(object, address)))
        };
        covering.iter().filter_map(place).collect()
    }

    /// Every object that covered `address` in `process` at some time, earliest first.
    pub fn covering(&mut self, recording: &Recording, process: u32, address: u64) -> &[u32] {
        self.cache.entry((process, address)).or_insert_with(|| {
            let all = self.by_process.get(process as usize).map_or(&[][..], |list| list);
            let covers =
                |i: &&u32| recording.objects.get(**i as usize).is_some_and(|o| (o.start..o.end).contains(&address));
            all.iter().filter(covers).copied().collect()
        })
    }
}

/// Facts keys of build-ids that several files share. Such files are recognised by one process loading them from
/// different paths: the dynamic loader loads no file twice.
fn shared_keys(recording: &Recording) -> HashSet<u64> {
    let mut paths: HashMap<(u32, u64), &[u8]> = HashMap::new();
    let named = recording.objects.iter().filter(|object| !object.path.is_empty());
    let other = named.filter(|object| {
        let first = paths.entry((object.process, object.facts_key)).or_insert(&object.path);
        *first != &object.path[..]
    });
    other.map(|object| object.facts_key).collect()
}

/// What identifies an object: the build-id, if only one file has it; else the facts key, made of headers that two
/// builds may share, together with the path.
fn identity<'a>(object: &'a Object, shared: &HashSet<u64>) -> (u64, &'a [u8], &'a [u8]) {
    let unique = !object.build_id.is_empty() && !shared.contains(&object.facts_key);
    let path = if unique { &[] } else { &object.path[..] };
    (object.facts_key, &object.build_id, path)
}

/// File address of a process address in the object.
pub fn file_address(object: &Object, address: u64) -> u64 {
    address.wrapping_sub(object.bias)
}

/// The address to look up for a frame: a return address belongs to the call that precedes it.
pub fn lookup_address(address: u64, exact: bool) -> u64 {
    if exact {
        address
    } else {
        address.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;

    #[test]
    fn an_address_reused_by_another_object_is_distinguished_by_time() {
        let object =
            |time, start, end, path: &[u8]| Object { time, start, end, path: path.to_vec(), ..Object::default() };
        let recording = Recording {
            processes: vec![Process::default()],
            objects: vec![object(50, 0x2000, 0x3000, b"b"), object(10, 0x1000, 0x3000, b"a"), object(50, 0, 1, b"a")],
            ..Recording::default()
        };
        let mut map = ObjectMap::new(&recording);
        assert_eq!(map.find(&recording, 0, 0x2000, 49), Some(1));
        assert_eq!(map.find(&recording, 0, 0x2000, 50), Some(0));
        assert_eq!(map.find(&recording, 0, 0x1000, 50), Some(1));
        assert_eq!(map.find(&recording, 0, 0x2fff, 5), Some(1), "seen just after the sample's time");
        assert_eq!(map.find(&recording, 0, 0x3000, 99), None);
        assert_eq!(map.find(&recording, 1, 0x2000, 99), None);
        assert_eq!((map.canonical(1), map.canonical(2)), (1, 1), "the same path");
    }

    #[test]
    fn code_of_a_second_mapping_is_its_objects_until_it_is_gone() {
        let object = |start, end, bias| Object { start, end, bias, facts_key: start, ..Object::default() };
        let mapping = |time, start, original| SecondMapping { time, start, end: start + 0x100, original, process: 0 };
        let recording = Recording {
            processes: vec![Process::default()],
            objects: vec![object(0x1000, 0x2000, 0x800), object(0x8000, 0x8080, 0x8000)],
            // In the order in which they were found, which is not that of time.
            second_mappings: vec![mapping(30, 0x8000, 0), mapping(10, 0x8000, 0x1200), mapping(50, 0x8040, 0x1300)],
            ..Recording::default()
        };
        let mut map = ObjectMap::new(&recording);
        let original = |address, time| map.original(0, address, time);
        assert_eq!([9, 10, 29, 30].map(|time| original(0x80f0, time)), [None, Some(0x12f0), Some(0x12f0), None]);
        assert_eq!(original(0x80f0, 50), Some(0x13b0), "the latest that covers it");
        assert_eq!([original(0x8100, 29), map.original(1, 0x80f0, 29)], [None, None]);
        let mut places = map.places(&recording, 0, 0x80f0);
        places.sort_unstable();
        assert_eq!(places, [(0, 0xaf0), (0, 0xbb0)]);
        assert_eq!(map.places(&recording, 0, 0x8010), [(1, 0x10)], "an object's own code is its own");
    }

    #[test]
    fn the_same_file_is_one_object_and_the_one_with_a_path_stands_for_it() {
        let map = |build_id: &[u8]| {
            let object = |facts_key, path: &[u8]| {
                let build_id = build_id.iter().map(|b| b ^ facts_key as u8).collect();
                Object { facts_key, build_id, path: path.to_vec(), process: path.len() as u32, ..Object::default() }
            };
            let objects = vec![object(7, b""), object(8, b"x"), object(7, b"/bin/a"), object(7, b"/usr/bin/a")];
            let recording = Recording { processes: vec![Process::default(); 11], objects, ..Recording::default() };
            let map = ObjectMap::new(&recording);
            [0, 1, 2, 3].map(|i| map.canonical(i))
        };
        assert_eq!(map(&[1; 20]), [2, 1, 2, 2]);
        assert_eq!(map(&[]), [2, 1, 2, 3], "without a build-id, another path may be another file");
    }

    #[test]
    fn two_files_of_one_process_are_two_objects_whatever_their_build_id_says() {
        let object = |process, path: &[u8]| Object {
            process,
            facts_key: 7,
            build_id: vec![1; 20],
            path: path.to_vec(),
            ..Object::default()
        };
        let objects = vec![object(0, b"/a.so"), object(0, b"/b.so"), object(1, b"/b.so")];
        let recording = Recording { processes: vec![Process::default(); 2], objects, ..Recording::default() };
        let map = ObjectMap::new(&recording);
        assert_eq!([0, 1, 2].map(|i| map.canonical(i)), [0, 1, 1]);
    }
}
