//! Starts the program with what it needs to be recorded.

use crate::config::{Config, RecordError};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use uunwind_ring::{ENV_OBJECTS, ENV_SESSION};

/// Starts the program; gives its pid. Nobody waits for it yet.
pub fn spawn(config: &Config, session: &str, preload: &OsStr, objects: &OsStr) -> Result<u32, RecordError> {
    let program = config.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(config.command.iter().skip(1));
    command.env(ENV_SESSION, session).env(ENV_OBJECTS, objects).env("LD_PRELOAD", preload);
    let mask = current_mask();
    // SAFETY: the closure runs in the new process before exec, and makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(move || {
            // The standard library starts children with no signal blocked; ours gets what uu itself was given.
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    let child = command.spawn().map_err(|e| RecordError::Spawn(program, e))?;
    Ok(child.id())
}

fn current_mask() -> libc::sigset_t {
    // SAFETY: pthread_sigmask fills the set; an all-zero set is a valid, empty one.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
        mask
    }
}

/// The value of LD_PRELOAD: an AddressSanitizer runtime, which refuses to run unless it is first, then ours, then what
/// the user had.
pub fn preload_value(asan: Option<&PathBuf>, preload: &PathBuf, users: Option<OsString>) -> OsString {
    let mut value = OsString::new();
    let users = users.filter(|u| !u.is_empty());
    let own = asan.into_iter().chain([preload]).map(|p| p.as_os_str());
    for part in own.chain(users.as_deref()) {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(part);
    }
    value
}

/// The user's own LD_PRELOAD.
pub fn users_preload() -> Option<OsString> {
    env::var_os("LD_PRELOAD")
}

/// The value of `UU_SESSION_OBJECTS`.
pub fn objects_value(objects: &[PathBuf]) -> OsString {
    objects.iter().map(|p| p.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_in_ld_preload() {
        let (ours, asan) = (PathBuf::from("/u/p.so"), PathBuf::from("/a/libasan.so"));
        assert_eq!(preload_value(None, &ours, None), "/u/p.so");
        assert_eq!(preload_value(None, &ours, Some("".into())), "/u/p.so");
        assert_eq!(preload_value(Some(&asan), &ours, Some("x.so y.so".into())), "/a/libasan.so:/u/p.so:x.so y.so");
    }
}
