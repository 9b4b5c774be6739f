//! No panic path may be left in a shipped object: the panic handler calls a function that does not exist, so that one
//! makes the link fail. The only panic handler of the `dso` profile; elsewhere std's is used.

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    extern "C" {
        fn uu_panic_path_left_in_signal_code() -> !;
    }
    // SAFETY: never linked, so never called.
    unsafe { uu_panic_path_left_in_signal_code() }
}
