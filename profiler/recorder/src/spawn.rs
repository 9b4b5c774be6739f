//! Starts the program with the environment that it needs to be recorded.

use crate::config::{Config, RecordError};
use crate::inherited::{restore_for, Inherited};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::{env, io};
use uunwind_ring::{ENV_OBJECTS, ENV_SESSION, ENV_SOCKET};

/// Starts the program and returns its pid. The caller must wait for it. `socket`: the value of [`ENV_SOCKET`];
/// empty: there is none, and that of a uu around this one is not meant.
pub fn spawn(
    config: &Config,
    session: &str,
    socket: &str,
    preload: &OsStr,
    objects: &OsStr,
) -> Result<u32, RecordError> {
    let named = |name, value| (OsStr::new(name), value);
    let mut added = vec![
        named(ENV_SESSION, OsStr::new(session)),
        named(ENV_SOCKET, OsStr::new(socket)),
        named(ENV_OBJECTS, objects),
        named("LD_PRELOAD", preload),
    ];
    added.extend(config.environment.iter().map(|(name, value)| named(name, OsStr::new(value))));
    run(&config.command, &added).map_err(|e| RecordError::Spawn(config.command.first().cloned().unwrap_or_default(), e))
}

fn run(command: &[OsString], added: &[(&OsStr, &OsStr)]) -> io::Result<u32> {
    match spawn_in_place(command, added) {
        Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => spawn_by_fork(command, added),
        started => started,
    }
}

/// Starts it by [posix_spawn(3)](https://man7.org/linux/man-pages/man3/posix_spawn.3.html), whose child shares uu's
/// memory until exec. A forked child would first copy and discard uu's page tables, and this time would count as the
/// program's CPU time.
fn spawn_in_place(command: &[OsString], added: &[(&OsStr, &OsStr)]) -> io::Result<u32> {
    let arguments = strings(command.iter().map(|word| word.as_bytes().to_vec()))?;
    let inherited = env::vars_os().filter(|(name, _)| added.iter().all(|(taken, _)| name != taken));
    let pair = |name: &OsStr, value: &OsStr| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let environment = strings(
        inherited.map(|(name, value)| pair(&name, &value)).chain(added.iter().map(|(name, value)| pair(name, value))),
    )?;
    let Some(program) = arguments.first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) };
    let (mut pid, inherited) = (0, Inherited::of_uu());
    let _ignored = Ignored::these(inherited.ignored());
    // SAFETY: attributes and actions are initialised before they are used and destroyed once; both lists end in a null
    // pointer, and their strings live until the call returns.
    unsafe {
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        check(libc::posix_spawnattr_init(&mut attributes))?;
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        let mut done = check(libc::posix_spawn_file_actions_init(&mut actions));
        for file in inherited.closed() {
            done = done.and_then(|()| check(libc::posix_spawn_file_actions_addclose(&mut actions, file)));
        }
        // As the standard library does for children: it ignores SIGPIPE in uu, which the program would inherit.
        let mut pipe: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        if !inherited.ignored().any(|signal| signal == libc::SIGPIPE) {
            libc::sigaddset(&mut pipe, libc::SIGPIPE);
        }
        let done = done
            .and_then(|()| check(libc::posix_spawnattr_setsigdefault(&mut attributes, &pipe)))
            .and_then(|()| check(libc::posix_spawnattr_setflags(&mut attributes, libc::POSIX_SPAWN_SETSIGDEF as _)))
            .and_then(|()| {
                check(libc::posix_spawnp(
                    &mut pid,
                    program.as_ptr(),
                    &actions,
                    &attributes,
                    pointers(&arguments).as_ptr(),
                    pointers(&environment).as_ptr(),
                ))
            });
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::posix_spawnattr_destroy(&mut attributes);
        done?;
    }
    Ok(pid as u32)
}

/// Signals that uu ignores for the moment in which a child inherits that.
struct Ignored(Vec<(i32, libc::sigaction)>);

impl Ignored {
    fn these(signals: impl Iterator<Item = i32>) -> Ignored {
        let ignore = |signal| {
            // SAFETY: all-zero is a valid sigaction.
            let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
            new.sa_sigaction = libc::SIG_IGN;
            // SAFETY: both live during the call.
            (unsafe { libc::sigaction(signal, &raw const new, &raw mut old) } == 0).then_some((signal, old))
        };
        Ignored(signals.filter_map(ignore).collect())
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: what it was before.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

fn strings(words: impl Iterator<Item = Vec<u8>>) -> io::Result<Vec<CString>> {
    words.map(|word| CString::new(word).map_err(io::Error::from)).collect()
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|s| s.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

/// Starts it by fork and [execvp(3)](https://man7.org/linux/man-pages/man3/exec.3.html), which passes an executable
/// file of unknown format to the shell.
fn spawn_by_fork(words: &[OsString], added: &[(&OsStr, &OsStr)]) -> io::Result<u32> {
    let mut command = Command::new(words.first().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(words.iter().skip(1)).envs(added.iter().copied());
    let mask = current_mask();
    // SAFETY: the closure runs in the new process before exec, and makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(move || {
            // The standard library starts children with no signal blocked; the program must inherit uu's mask.
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    restore_for(&mut command);
    Ok(command.spawn()?.id())
}

fn current_mask() -> libc::sigset_t {
    // SAFETY: pthread_sigmask fills the set; an all-zero set is a valid, empty one.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
        mask
    }
}

/// The value of LD_PRELOAD: an AddressSanitizer runtime, which refuses to run unless it is first, then our objects,
/// then the user's own value. What our first object uses is named here, too: to open it later, the loader would call
/// the program's allocator, which may not be ready before `main`; and if it were a need of the first, a program that
/// finds only that one, in a mount namespace of its own, would not start.
pub fn preload_value(asan: Option<&PathBuf>, ours: &[&PathBuf], users: Option<OsString>) -> OsString {
    let mut value = OsString::new();
    let users = users.filter(|u| !u.is_empty());
    let own = asan.into_iter().chain(ours.iter().copied()).map(|p| p.as_os_str());
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
    use std::fs;

    /// Runs a command to its end; its wait status.
    fn ends(command: &[&str], added: &[(&OsStr, &OsStr)]) -> io::Result<i32> {
        let pid = run(&command.iter().map(OsString::from).collect::<Vec<_>>(), added)?;
        let mut status = 0;
        // SAFETY: our own child, and a live local for its status.
        assert_eq!(unsafe { libc::waitpid(pid as i32, &mut status, 0) }, pid as i32);
        Ok(status)
    }

    #[test]
    fn a_program_gets_what_is_added_and_what_was_there() {
        let added =
            [(OsStr::new("UU_SPAWN_TEST"), OsStr::new("a b=c")), (OsStr::new("HOME"), OsStr::new("/of the test"))];
        let check = r#"test "$UU_SPAWN_TEST" = "a b=c" && test "$HOME" = "/of the test" && test "$1" = "two words" &&
            test "$PATH" = "$2" && test "$(env | grep -c ^HOME=)" = 1"#;
        let path = env::var("PATH").expect("PATH");
        assert_eq!(ends(&["sh", "-c", check, "sh", "two words", &path], &added).expect("sh"), 0);
        assert_ne!(ends(&["sh", "-c", check, "sh", "others", &path], &added).expect("sh"), 0);
    }

    #[test]
    fn sigpipe_ends_a_program_though_uu_ignores_it() {
        // The standard library does this before main, also in a test's process. SAFETY: sets the disposition that this
        // process has anyway.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let status = ends(&["sh", "-c", "kill -PIPE $$"], &[]).expect("sh");
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGPIPE, "{status:#x}");
    }

    /// SIGUSR2 is 12, so bit 11.
    const SIGUSR2_IS_BLOCKED: &[&str] = &["grep", "-q", "^SigBlk:.*[89a-f]..$", "/proc/self/status"];

    #[test]
    fn blocked_signals_stay_blocked() {
        // SAFETY: sets of this thread, whose mask is put back.
        let status = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            let status = ends(SIGUSR2_IS_BLOCKED, &[]);
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            status
        };
        assert_eq!(status.expect("grep"), 0);
        assert_ne!(ends(SIGUSR2_IS_BLOCKED, &[]).expect("grep"), 0);
    }

    #[test]
    fn a_script_without_an_interpreter_goes_to_the_shell_as_with_env() {
        let path = env::temp_dir().join(format!("uu-spawn-{}", std::process::id()));
        let path = path.to_str().expect("UTF-8");
        // Written by another process: if this one wrote it, a child of another test might hold it open for writing when
        // it is executed (ETXTBSY).
        let write = ["sh", "-c", "printf 'exit $1\\n' >\"$1\" && chmod 755 \"$1\"", "sh", path];
        assert_eq!(ends(&write, &[]).expect("sh"), 0);
        let status = ends(&[path, "7"], &[]);
        fs::remove_file(path).expect("removed");
        assert_eq!(libc::WEXITSTATUS(status.expect("the shell")), 7);
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        for (program, error) in
            [("/nonexistent/program", libc::ENOENT), ("/etc/passwd", libc::EACCES), ("/", libc::EACCES)]
        {
            let e = ends(&[program], &[]).expect_err(program);
            assert_eq!(e.raw_os_error(), Some(error), "{program}");
        }
        assert_eq!(ends(&["a\0b"], &[]).expect_err("a NUL").kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn order_in_ld_preload() {
        let (first, second, asan) =
            (PathBuf::from("/u/p.so"), PathBuf::from("/u/q.so"), PathBuf::from("/a/libasan.so"));
        let ours = [&first, &second];
        assert_eq!(preload_value(None, &ours, None), "/u/p.so:/u/q.so");
        assert_eq!(preload_value(None, &ours[..1], Some("".into())), "/u/p.so");
        let with_users = preload_value(Some(&asan), &ours, Some("x.so y.so".into()));
        assert_eq!(with_users, "/a/libasan.so:/u/p.so:/u/q.so:x.so y.so");
    }
}
