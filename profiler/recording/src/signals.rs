//! Names of signals.

/// The name of a signal on x86-64, such as `SIGSEGV` ([signal(7)](https://man7.org/linux/man-pages/man7/signal.7.html));
/// of a real-time signal and of what is none, `signal` and the number.
pub fn signal_name(number: impl Into<i64>) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let number = number.into();
    let name = usize::try_from(number).ok().and_then(|number| NAMES.get(number.checked_sub(1)?));
    name.map_or_else(|| format!("signal {number}"), |name| format!("SIG{name}"))
}
