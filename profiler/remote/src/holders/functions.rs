//! Which lock a function of glibc waits for, by the names of a stack's innermost frames.

use super::What;
use std::collections::HashMap;
use uunwind_core::frame::{frames, Frame};
use uunwind_recording::objects::{file_address, lookup_address, ObjectMap};
use uunwind_recording::{Recording, Sample};

/// Number of native frames up to the function that locks, at most.
const INNERMOST: usize = 6;

/// The functions of a recording's frames.
pub(super) struct Functions<'r> {
    map: ObjectMap,
    /// By object and file address.
    names: HashMap<(u32, u64), &'r str>,
}

impl<'r> Functions<'r> {
    pub(super) fn of(recording: &'r Recording) -> Functions<'r> {
        let entries = recording.symbols.iter().flat_map(|symbols| &symbols.entries);
        let names = entries.map(|symbol| ((symbol.object, symbol.address), symbol.name.as_str())).collect();
        Functions { map: ObjectMap::new(recording), names }
    }

    /// What the thread is locking, by its innermost frames: the function that locks, and before it only functions of
    /// the same object that have no name, or the name of one by which glibc waits.
    pub(super) fn locking(&mut self, recording: &Recording, sample: &Sample) -> Option<What> {
        let (mut node, mut home) = (sample.stack, None);
        for index in 0..INNERMOST {
            let entry = recording.nodes.get((node as usize).checked_sub(1)?)?;
            node = entry.parent;
            let Frame::Native { address, exact, .. } = frames(&[entry.word, entry.position]).next()? else {
                return None;
            };
            // A signal's handler may wait for something else.
            if exact && index > 0 {
                return None;
            }
            let lookup = lookup_address(address, exact);
            let object = self.map.find(recording, 0, lookup, sample.time)?;
            if *home.get_or_insert(object) != object {
                return None;
            }
            let at = file_address(recording.objects.get(object as usize)?, lookup);
            let name = self.names.get(&(self.map.canonical(object), at)).copied().unwrap_or_default();
            match function(name) {
                Function::Locks(what) => return Some(what),
                Function::Waits => {}
                Function::Other => return None,
            }
        }
        None
    }
}

/// A function of glibc, by what it says about a wait inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// It waits for nothing but the lock that it was called with.
    Locks(What),
    /// It has no name, or is one by which others wait.
    Waits,
    Other,
}

/// `name`: as its file has it; libc.so.6 has some functions under several names.
fn function(name: &str) -> Function {
    let plain = name.split(['@', '.']).next().unwrap_or(name).trim_start_matches('_');
    let plain = plain.strip_prefix("GI_").unwrap_or(plain).trim_start_matches('_');
    match plain {
        "pthread_mutex_lock"
        | "pthread_mutex_timedlock"
        | "pthread_mutex_clocklock"
        | "pthread_mutex_cond_lock"
        | "pthread_mutex_lock_full"
        | "pthread_mutex_cond_lock_full"
        | "pthread_mutex_clocklock_common" => Function::Locks(What::Mutex),
        "pthread_rwlock_rdlock"
        | "pthread_rwlock_timedrdlock"
        | "pthread_rwlock_clockrdlock"
        | "pthread_rwlock_wrlock"
        | "pthread_rwlock_timedwrlock"
        | "pthread_rwlock_clockwrlock" => Function::Locks(What::RwLock),
        "fputs" | "puts" | "fwrite" | "fputc" | "putc" | "putchar" | "fgets" | "fgetc" | "getc" | "fread"
        | "fflush" | "fclose" | "flockfile" | "vfprintf" | "vfprintf_internal" | "printf" | "fprintf" | "getdelim"
        | "ungetc" | "fseek" | "ftell" | "perror" => Function::Locks(What::Stdio),
        _ if plain.starts_with("IO_") => Function::Locks(What::Stdio),
        "" => Function::Waits,
        _ if ["lll_", "futex_", "pthread_rwlock_rdlock_full", "pthread_rwlock_wrlock_full"]
            .iter()
            .any(|start| plain.starts_with(start)) =>
        {
            Function::Waits
        }
        _ => Function::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_all_their_names() {
        for name in [
            "pthread_mutex_lock",
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_lock",
            "pthread_mutex_lock@@GLIBC_2.2.5",
        ] {
            assert_eq!(function(name), Function::Locks(What::Mutex), "{name}");
        }
        assert_eq!(function("__pthread_rwlock_wrlock"), Function::Locks(What::RwLock));
        for name in ["_IO_puts", "puts", "__GI__IO_fwrite", "flockfile", "__vfprintf_internal"] {
            assert_eq!(function(name), Function::Locks(What::Stdio), "{name}");
        }
        for name in ["", "__lll_lock_wait", "__GI___lll_lock_wait", "__futex_abstimed_wait_common64", "futex_wait"] {
            assert_eq!(function(name), Function::Waits, "{name}");
        }
        for name in ["pthread_cond_wait", "sem_wait", "handler", "my_pthread_mutex_lock"] {
            assert_eq!(function(name), Function::Other, "{name}");
        }
    }
}
