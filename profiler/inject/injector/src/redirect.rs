//! The entries of a process's global offset tables are made to lead to its gate, and back.
//!
//! All threads stand still meanwhile, so none reads an entry that is half written, and no object comes or goes. The
//! entries are written by ptrace, which needs no right to write there: read-only pages stay read-only. Most of them are
//! read beforehand, so that the threads stand as long as it takes to write some hundred words.

use super::gate::all_in;
use super::loaded::{mapping_at, objects, table, Object, Slot, Table};
use super::preflight::Place;
use super::remote_call::Trouble;
use super::{alone, is_of_events, PATIENCE};
use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::offset_of;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps::{self, Mapping};
use uunwind_remote::memory::Memory;
use uunwind_remote::threads::Stopped;
use uunwind_ring::gate::{
    is_of_other_allocators, Called, Hooks, ASKED, CALLED, FUNCTIONS, HELPERS, HOOKS, LABEL, LIBRARY, NEW_HELPER, STUB,
    SWITCH, VARIANTS,
};
use uunwind_ring::{FLAG_ALLOC, FLAG_LOCK};

/// Time between attempts to find all threads standing, and the loader at rest.
const PAUSE: Duration = Duration::from_millis(5);

/// Values of entries that the loader had not bound when they were redirected, by their addresses.
pub type Unbound = HashMap<u64, u64>;

/// A process whose calls are led through a gate.
pub struct Redirected {
    pid: u32,
    /// Address of the loader's `r_debug`.
    debug: u64,
    gate: u64,
    /// It, and those of other versions of uu.
    gates: Vec<u64>,
    /// `FLAG_*` of the recording.
    flags: u32,
    tables: HashMap<Object, Table>,
    /// Entries that stay as they are.
    left: HashSet<u64>,
    /// Those that lead to what calls malloc and its relatives.
    inner: HashSet<u64>,
    /// What the loader had not bound, by the entry.
    unbound: Unbound,
    /// The program defines malloc itself.
    pub has_own_allocator: bool,
}

/// What came of redirecting: entries that stay, those that lead to what calls malloc and its relatives, and what was
/// not bound.
#[derive(Default)]
struct Done {
    left: HashSet<u64>,
    inner: HashSet<u64>,
    unbound: Unbound,
}

/// The values of the gate's functions, as they were read.
struct Values {
    values: [[u64; VARIANTS]; FUNCTIONS.len()],
    canonical: [u64; FUNCTIONS.len()],
}

/// Address of what a function's stub calls.
fn value_at(gate: u64, function: usize, variant: usize) -> u64 {
    gate + (CALLED + offset_of!(Called, values) + 8 * (function * VARIANTS + variant)) as u64
}

fn canonical_at(gate: u64, function: usize) -> u64 {
    gate + (CALLED + offset_of!(Called, canonical) + 8 * function) as u64
}

fn recorder_at(gate: u64) -> u64 {
    gate + (CALLED + offset_of!(Called, recorder)) as u64
}

fn left_at(gate: u64) -> u64 {
    gate + (CALLED + offset_of!(Called, left)) as u64
}

fn cancels_at(gate: u64) -> u64 {
    gate + (CALLED + offset_of!(Called, cancels)) as u64
}

fn stub_at(gate: u64, function: usize, variant: usize) -> u64 {
    gate + ((function * VARIANTS + variant) * STUB) as u64
}

/// Function and variant of the stub at this address.
fn stub_of(gate: u64, address: u64) -> Option<(usize, usize)> {
    let index = usize::try_from(address.checked_sub(gate)?).ok()? / STUB;
    (index < FUNCTIONS.len() * VARIANTS).then_some((index / VARIANTS, index % VARIANTS))
}

fn word(memory: &Memory, at: u64) -> u64 {
    let mut bytes = [0; 8];
    if memory.read_now(at, &mut bytes) {
        u64::from_le_bytes(bytes)
    } else {
        0
    }
}

impl Values {
    fn read(memory: &Memory, gate: u64) -> Values {
        let value = |function, variant| word(memory, value_at(gate, function, variant));
        Values {
            values: std::array::from_fn(|function| std::array::from_fn(|variant| value(function, variant))),
            canonical: std::array::from_fn(|function| word(memory, canonical_at(gate, function))),
        }
    }
}

/// Runs this while all threads of a process stand still and its loader is at rest; again if that, or `run`, says that
/// it cannot be so now.
fn standing<T: Send>(
    pid: u32,
    patience: Duration,
    run: impl Fn(&Stopped) -> Result<T, Trouble> + Sync,
) -> Result<T, Trouble> {
    let begun = Instant::now();
    loop {
        let done = alone(|| {
            let stopped = Stopped::all_of(pid)?;
            if stopped.threads().next().is_none() || stopped.threads().any(|(_, before)| before.is_none()) {
                return Err(Trouble::Unfit);
            }
            run(&stopped)
        });
        match done {
            Err(Trouble::Unfit) if begun.elapsed() < patience => uunwind_clock::sleep(PAUSE),
            other => return other,
        }
    }
}

/// An error if these gates do not lie there any more: after an exec, something else may.
fn must_be_there(pid: u32, gates: &[u64]) -> Result<(), Trouble> {
    if all_in(pid) == gates {
        Ok(())
    } else {
        Err(Trouble::Failed(io::Error::other("its gate is not where it was")))
    }
}

fn all_mappings(pid: u32) -> Result<Vec<Mapping>, Trouble> {
    Ok(maps::of(pid)?.collect())
}

/// Whether the process has libuunwind, by which a program asks something of its recording.
pub fn may_ask(pid: u32) -> bool {
    let is_it = |mapping: Mapping| {
        let name = mapping.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        name.starts_with(LIBRARY)
    };
    maps::of(pid).into_iter().flatten().any(is_it)
}

impl Redirected {
    /// Redirects the entries of all objects, and has the gate call these hooks.
    pub fn begin(pid: u32, place: &Place, hooks: [u64; 2], flags: u32) -> Result<Redirected, Trouble> {
        let gate = place.gate();
        let mut this = Redirected {
            pid,
            debug: place.debug,
            gate,
            gates: all_in(pid),
            flags,
            tables: HashMap::new(),
            left: HashSet::new(),
            inner: HashSet::new(),
            unbound: Unbound::new(),
            has_own_allocator: false,
        };
        this.read()?;
        let done = standing(pid, PATIENCE, |stopped| {
            let done = this.redirect(stopped)?;
            // Of an earlier recording.
            stopped.write_word(left_at(gate), 0)?;
            for (at, hook) in [offset_of!(Hooks, before), offset_of!(Hooks, after)].into_iter().zip(hooks) {
                stopped.write_word(gate + (HOOKS + at) as u64, hook)?;
            }
            Ok(done)
        });
        let done = done.map_err(|trouble| match trouble {
            Trouble::Unfit => Trouble::Failed(io::Error::other(
                "a thread could not be stopped, or the dynamic loader was at work, whenever that was looked at",
            )),
            other => other,
        })?;
        this.keep(done);
        Ok(this)
    }

    fn keep(&mut self, done: Done) {
        (self.left, self.inner) = (done.left, done.inner);
        self.unbound.extend(done.unbound);
    }

    /// What the loader had not bound.
    pub fn into_unbound(self) -> Unbound {
        self.unbound
    }

    /// Reads the tables of objects that are new.
    fn read(&mut self) -> Result<(), Trouble> {
        let (memory, mappings) = (Memory::of(self.pid), all_mappings(self.pid)?);
        let found = objects(&memory, self.debug).unwrap_or_default();
        self.tables.retain(|object, _| found.contains(object));
        for (index, object) in found.iter().enumerate() {
            if !self.tables.contains_key(object) {
                // The vDSO, and what else has none.
                let table = table(&memory, object, &mappings).unwrap_or_default();
                self.has_own_allocator |= index == 0 && table.allocates();
                self.tables.insert(*object, table);
            }
        }
        Ok(())
    }

    /// Looks for entries that lead elsewhere: of objects that were loaded since, or that the loader has bound since.
    pub fn look(&mut self) -> Result<(), Trouble> {
        self.read()?;
        let memory = Memory::of(self.pid);
        let values = Values::read(&memory, self.gate);
        let is_new = |slot: &Slot| {
            let value = word(&memory, slot.place);
            let is_done = stub_of(self.gate, value).is_some()
                || value == 0
                || self.left.contains(&slot.place)
                || self.inner.contains(&slot.place);
            !is_done && values.canonical.get(slot.function) != Some(&value)
        };
        let is_unasked = |table: &Table| table.recorder != 0 && word(&memory, table.recorder) == 0;
        if self.tables.values().any(|table| is_unasked(table) || table.wanted(self.flags).any(is_new)) {
            let done = standing(self.pid, PATIENCE, |stopped| self.redirect(stopped))?;
            self.keep(done);
        }
        Ok(())
    }

    /// Redirects all entries that are not.
    fn redirect(&self, stopped: &Stopped) -> Result<Done, Trouble> {
        must_be_there(self.pid, &self.gates)?;
        let (memory, mappings) = (Memory::of(self.pid), all_mappings(self.pid)?);
        let found = objects(&memory, self.debug).ok_or(Trouble::Unfit)?;
        let mut new = HashMap::new();
        for object in found.iter().filter(|object| !self.tables.contains_key(object)) {
            new.insert(*object, table(&memory, object, &mappings).unwrap_or_default());
        }
        let of = |object: &Object| self.tables.get(object).or_else(|| new.get(object));
        let mut values = Values::read(&memory, self.gate);
        self.write_defaults(stopped, &found, of, &mut values)?;
        let recorders = found.iter().filter_map(of).map(|table| table.recorder);
        for recorder in recorders.filter(|at| *at != 0 && word(&memory, *at) == 0) {
            stopped.write_word(recorder, recorder_at(self.gate))?;
        }
        let others = found.iter().filter(|object| of(object).is_some_and(Table::is_other_allocator));
        let others: Vec<&Mapping> = others.filter_map(|object| mapping_at(&mappings, object.dynamic)).collect();
        let is_of_other = |address: u64| {
            mapping_at(&mappings, address).is_some_and(|there| others.iter().any(|other| there.is_of_file(other)))
        };
        let mut done = Done::default();
        for object in &found {
            let Some(table) = of(object) else { continue };
            let page = mapping_at(&mappings, table.relro).filter(|_| table.relro != 0);
            if page.is_some_and(Mapping::is_writable) {
                // The loader has not relocated it yet.
                continue;
            }
            for slot in table.wanted(self.flags) {
                let value = word(&memory, slot.place);
                if stub_of(self.gate, value).is_some() || values.canonical[slot.function] == value {
                    continue;
                }
                let old = self.called_by(object, slot, value, &mappings, &values);
                let is_counted = values.values[slot.function][0] != 0 && old.is_some_and(is_of_other);
                if is_of_other_allocators(slot.function) && !is_counted {
                    done.inner.insert(slot.place);
                    continue;
                }
                let all = &mut values.values[slot.function];
                let variant = old.and_then(|old| all.iter().position(|known| *known == old || *known == 0));
                let (Some(old), Some(variant)) = (old, variant) else {
                    done.left.insert(slot.place);
                    continue;
                };
                all[variant] = old;
                stopped.write_word(value_at(self.gate, slot.function, variant), old)?;
                stopped.write_word(slot.place, stub_at(self.gate, slot.function, variant))?;
                if old != value {
                    done.unbound.insert(slot.place, value);
                }
            }
        }
        Ok(done)
    }

    /// What the stub of an entry is to call. The entry's value: so what stands before libc's function goes on being
    /// called, and what an object of another namespace allocates and frees stays with its own. If the loader has not
    /// bound the entry yet, what the program's scope has for the name, which it would bind it to. `None`: neither is
    /// known.
    fn called_by(
        &self,
        object: &Object,
        slot: &Slot,
        value: u64,
        mappings: &[Mapping],
        values: &Values,
    ) -> Option<u64> {
        let there = mapping_at(mappings, value).filter(|mapping| mapping.is_executable())?;
        let own = mapping_at(mappings, object.dynamic)?;
        if there.is_of_file(own) && value != slot.own {
            let scope = values.values[slot.function][0];
            return (object.is_of_program && scope != 0).then_some(scope);
        }
        Some(value)
    }

    /// Writes what the program's scope has for each function, and what the sampler calls itself.
    fn write_defaults<'t>(
        &self,
        stopped: &Stopped,
        found: &[Object],
        of: impl Fn(&Object) -> Option<&'t Table>,
        values: &mut Values,
    ) -> Result<(), Trouble> {
        let tables = || found.iter().filter(|object| object.is_of_program).filter_map(&of);
        let first = |function: usize| {
            let table = tables().find(|table| table.defined[function] != 0)?;
            let is_usable = !is_of_other_allocators(function) || table.is_other_allocator();
            is_usable.then_some(table.defined[function])
        };
        for function in 0..FUNCTIONS.len() {
            let defined = first(function);
            if let (Some(defined), 0) = (defined, values.values[function][0]) {
                values.values[function][0] = defined;
                stopped.write_word(value_at(self.gate, function, 0), defined)?;
            }
        }
        for slot in tables().take(1).flat_map(|program| &program.slots).filter(|slot| slot.canonical != 0) {
            values.canonical[slot.function] = slot.canonical;
            stopped.write_word(canonical_at(self.gate, slot.function), slot.canonical)?;
        }
        for variant in [SWITCH, LABEL] {
            let at = recorder_at(self.gate) + 8 * variant as u64;
            stopped.write_word(at, stub_at(self.gate, ASKED, variant))?;
        }
        for helper in 0..HELPERS.len() {
            let defined = tables().find(|table| table.helpers[helper] != 0);
            let is_usable = |table: &&Table| helper < NEW_HELPER || table.is_other_allocator();
            if let Some(defined) = defined.filter(is_usable).map(|table| table.helpers[helper]) {
                stopped.write_word(self.gate + (CALLED + offset_of!(Called, helpers) + 8 * helper) as u64, defined)?;
            }
        }
        if found.iter().filter_map(&of).any(|table| table.cancels) {
            stopped.write_word(cancels_at(self.gate), 1)?;
        }
        Ok(())
    }

    /// What people should know.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let inside = word(&Memory::of(self.pid), left_at(self.gate));
        let left = self.left.len() as u64 + inside;
        if left > 0 && is_of_events(self.flags) {
            notes.push(format!(
                "{left} entries of loaded objects were left as they are, because what they lead to is not known: calls \
                 by these are not seen"
            ));
        }
        if self.flags & FLAG_LOCK != 0 && word(&Memory::of(self.pid), cancels_at(self.gate)) != 0 {
            notes.push(
                "the program calls pthread_cancel, and a thread that is cancelled unwinds its stack: waits in which \
                 threads can be cancelled (for condition variables, semaphores and ends of threads) were not sampled. \
                 Start it with uu record --mode lock -- PROGRAM"
                    .to_owned(),
            );
        }
        if self.flags & FLAG_ALLOC != 0 && self.has_own_allocator {
            notes.push(
                "the program has an allocator of its own, which it calls directly: only what libraries allocate is seen"
                    .to_owned(),
            );
        }
        notes
    }
}

/// Has all entries of a process lead to where they led before, and its gates, if it has any, call no hook. An entry
/// that was not bound, and whose value is not known any more, is bound by that.
pub fn undo(pid: u32, debug: u64, unbound: &Unbound, patience: Duration) -> Result<(), Trouble> {
    let gates = all_in(pid);
    if gates.is_empty() {
        return Ok(());
    }
    // Before they stand: it takes the longest.
    let read = || -> Result<HashMap<Object, Table>, Trouble> {
        let (memory, mappings) = (Memory::of(pid), all_mappings(pid)?);
        let found = objects(&memory, debug).unwrap_or_default();
        Ok(found.into_iter().filter_map(|object| Some((object, table(&memory, &object, &mappings)?))).collect())
    };
    let tables = read()?;
    let memory = Memory::of(pid);
    let has_hooks = gates.iter().any(|gate| word(&memory, gate + HOOKS as u64) != 0);
    let leads_there = |slot: &Slot| gates.iter().any(|gate| stub_of(*gate, word(&memory, slot.place)).is_some());
    let leads_to_gate = |memory: &Memory, table: &Table| {
        let value = if table.recorder == 0 { 0 } else { word(memory, table.recorder) };
        gates.iter().any(|gate| value == recorder_at(*gate))
    };
    if !has_hooks
        && !tables.values().any(|table| leads_to_gate(&memory, table))
        && !tables.values().flat_map(|table| &table.slots).any(leads_there)
    {
        return Ok(());
    }
    standing(pid, patience, |stopped| {
        must_be_there(pid, &gates)?;
        let (memory, mappings) = (Memory::of(pid), all_mappings(pid)?);
        for gate in &gates {
            for at in [offset_of!(Hooks, before), offset_of!(Hooks, after)] {
                stopped.write_word(gate + (HOOKS + at) as u64, 0)?;
            }
        }
        let found = objects(&memory, debug).ok_or(Trouble::Unfit)?;
        for object in &found {
            let new = if tables.contains_key(object) { None } else { table(&memory, object, &mappings) };
            let Some(table) = tables.get(object).or(new.as_ref()) else { continue };
            if leads_to_gate(&memory, table) {
                stopped.write_word(table.recorder, 0)?;
            }
            for slot in &table.slots {
                let value = word(&memory, slot.place);
                let Some((gate, (function, variant))) =
                    gates.iter().find_map(|gate| Some((*gate, stub_of(*gate, value)?)))
                else {
                    continue;
                };
                let called = word(&memory, value_at(gate, function, variant));
                let old = unbound.get(&slot.place).copied().unwrap_or(called);
                if old != 0 {
                    stopped.write_word(slot.place, old)?;
                }
            }
        }
        Ok(())
    })
}
