//! Gives the program's dispositions back to the kernel when the recording is over. By raw system calls, because it runs
//! inside a handler.

use super::{altstack, bit, dispositions, masks, noted, sampling, virtual_signals};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uunwind_core::syscall::{self, nr};

/// Virtual signals (a bit each) whose disposition in the kernel is the program's again.
static RETURNED: AtomicU64 = AtomicU64::new(0);
/// glibc's `sa_restorer`, which the kernel requires for every handler on x86-64
/// ([sigreturn(2)](https://man7.org/linux/man-pages/man2/sigreturn.2.html)); 0 where glibc has none, as on AArch64: the
/// kernel's vDSO has it.
static RESTORER: AtomicUsize = AtomicUsize::new(0);

/// The kernel's struct sigaction
/// ([asm/signal.h](https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/signal.h),
/// [asm-generic/signal.h](https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/signal.h)), which has
/// `sa_restorer` on AArch64, too
/// ([asm/signal.h](https://github.com/torvalds/linux/blob/v6.12/arch/arm64/include/uapi/asm/signal.h)).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

const IGNORE: KernelAction = KernelAction { handler: libc::SIG_IGN, flags: 0, restorer: 0, mask: 0 };

/// Calls rt_sigaction(2). False: the kernel refused.
fn kernel_action(signal: c_int, new: Option<&KernelAction>, old: Option<&mut KernelAction>) -> bool {
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    let old = old.map_or(0, |old| core::ptr::from_mut(old) as usize);
    // SAFETY: null, or structures of the kernel's layout, with a signal set of 8 bytes.
    unsafe { syscall::call(nr::RT_SIGACTION, [signal as usize, new, old, 8, 0, 0]) == 0 }
}

/// Sets the kernel's disposition of a signal; 0, or the error. `restorer`, `mask`: for a handler, which gets siginfo
/// and ucontext, and after which system calls are restarted.
pub fn take_over(signal: c_int, handler: usize, restorer: usize, mask: u64) -> u32 {
    const SA_RESTORER: usize = 0x0400_0000;
    let is_function = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    let flags = if is_function { (libc::SA_SIGINFO | libc::SA_RESTART) as usize | SA_RESTORER } else { 0 };
    let action = KernelAction { handler, flags, restorer, mask };
    u32::from(!kernel_action(signal, Some(&action), None))
}

/// The kernel's disposition of a signal: the handler, and the flags.
pub fn disposition(signal: c_int) -> (usize, usize) {
    let mut action = KernelAction::default();
    kernel_action(signal, None, Some(&mut action));
    (action.handler, action.flags)
}

/// Stores glibc's `sa_restorer`. Called after a signal was taken over through glibc's sigaction.
pub fn learn_restorer() {
    let mut action = KernelAction::default();
    if kernel_action(sampling(), None, Some(&mut action)) {
        RESTORER.store(action.restorer, Ordering::Relaxed);
    }
}

/// Whether the kernel has the program's disposition of this signal again.
pub fn is_returned(signal: c_int) -> bool {
    (1..=64).contains(&signal) && RETURNED.load(Ordering::SeqCst) & bit(signal) != 0
}

/// Gives all dispositions back. Called when no timer of ours is left. Async-signal-safe.
pub fn give_back() {
    for signal in virtual_signals() {
        if signal == sampling() {
            if masks::are_the_kernels() || sampling() == libc::SIGTRAP {
                // A tick may still be pending where the program blocks the signal, and the program's handler must not
                // get it: ours stays. So it does for the recorder's perf events: the last of them may come after the
                // recorder was found to be gone.
                continue;
            }
            // A pending tick would end the process. Setting SIG_IGN discards pending signals
            // (https://man7.org/linux/man-pages/man2/sigaction.2.html).
            kernel_action(signal, Some(&IGNORE), None);
        }
        RETURNED.fetch_or(bit(signal), Ordering::SeqCst);
        apply(signal);
    }
    for signal in (1..=64).filter(|signal| !dispositions::is_virtual(*signal)) {
        let mut action = KernelAction::default();
        if !kernel_action(signal, None, Some(&mut action)) {
            continue;
        }
        let mut own = KernelAction { handler: noted::program_handler(signal, action.handler), ..action };
        if altstack::take_widened(signal) {
            own.mask &= !bit(sampling());
        }
        if (own.handler, own.mask) != (action.handler, action.mask) {
            kernel_action(signal, Some(&own), None);
        }
    }
}

/// Installs the program's disposition in the kernel. Repeats if it was changed during the call, so that the newest one
/// stays.
pub fn apply(signal: c_int) {
    for _ in 0..100 {
        let before = dispositions::changes(signal);
        let wanted = dispositions::get(signal);
        let action = KernelAction {
            handler: wanted.handler,
            flags: wanted.flags as usize,
            restorer: RESTORER.load(Ordering::Relaxed),
            mask: wanted.mask,
        };
        kernel_action(signal, Some(&action), None);
        if dispositions::changes(signal) == before {
            break;
        }
    }
}
