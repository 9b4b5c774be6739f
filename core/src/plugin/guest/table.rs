//! The functions of a plugin's table and its entry, made from safe functions.

use super::Guest;
use crate::plugin::{CRule, Position, View};

/// Calls a safe overlay or step for the host, and reports which registers it used; `nothing` is the answer where the
/// host's view cannot be used. [`visit!`](crate::visit) makes a table's function of it.
///
/// # Safety
/// `view` must be what the host passed: see [`Guest::new`].
#[inline(always)]
pub unsafe fn visit(view: *mut View, nothing: u32, answer: impl FnOnce(&Guest<'_>) -> u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(guest) = (unsafe { Guest::new(view) }) else { return nothing };
    let answer = answer(&guest);
    let (used, restored) = (guest.used.get(), guest.restored.get());
    // SAFETY: a view, by `Guest::new`; its borrow has ended, and these two fields are the plugin's to write.
    unsafe {
        (*view).used = used;
        (*view).restored = restored;
    }
    answer
}

/// Calls a safe rule function for the host. [`rule_of!`](crate::rule_of) makes a table's function of it.
///
/// # Safety
/// `view` must be what the host passed: see [`Guest::new`]; `out` must be null or its place for a rule.
#[inline(always)]
pub unsafe fn rule(view: *mut View, out: *mut CRule, give: impl FnOnce(&Guest<'_>) -> Option<CRule>) -> u32 {
    // SAFETY: the caller's promise.
    let rule = unsafe { Guest::new(view) }.and_then(|guest| give(&guest));
    match rule {
        Some(rule) if !out.is_null() => {
            // SAFETY: the host's place for a rule.
            unsafe { out.write(rule) };
            1
        }
        _ => 0,
    }
}

/// Calls a safe line function for the host: with the position and the bytes of its line table, which are empty if there
/// is none. [`line_of!`](crate::line_of) makes a table's function of it.
///
/// # Safety
/// `position` must be null or the host's position.
#[inline(always)]
pub unsafe fn line(position: *const Position, find: impl FnOnce(&Position, &[u8]) -> u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(position) = (unsafe { position.as_ref() }) else { return 0 };
    if position.table.is_null() {
        return find(position, &[]);
    }
    // SAFETY: the host's copy of the table, of this length.
    let table = unsafe { core::slice::from_raw_parts(position.table, position.table_len) };
    find(position, table)
}

/// The function for [`Plugin::overlay`](crate::plugin::Plugin::overlay) or
/// [`Plugin::step`](crate::plugin::Plugin::step) that calls a safe `fn(&Guest) -> u32`. The second argument is the
/// answer where the host's view cannot be used.
#[macro_export]
macro_rules! visit {
    ($answer:expr, $nothing:expr) => {{
        unsafe extern "C" fn entry(view: *mut $crate::plugin::View) -> u32 {
            // SAFETY: the host calls it, with its view.
            unsafe { $crate::plugin::guest::visit(view, $nothing, $answer) }
        }
        ::core::option::Option::Some(entry)
    }};
}

/// The function for [`Plugin::rule`](crate::plugin::Plugin::rule) that calls a safe `fn(&Guest) -> Option<CRule>`.
#[macro_export]
macro_rules! rule_of {
    ($give:expr) => {{
        unsafe extern "C" fn entry(view: *mut $crate::plugin::View, out: *mut $crate::plugin::CRule) -> u32 {
            // SAFETY: the host calls it, with its view and its place for a rule.
            unsafe { $crate::plugin::guest::rule(view, out, $give) }
        }
        ::core::option::Option::Some(entry)
    }};
}

/// The function for [`Plugin::line`](crate::plugin::Plugin::line) that calls a safe `fn(&Position, &[u8]) -> u32`.
#[macro_export]
macro_rules! line_of {
    ($find:expr) => {{
        unsafe extern "C" fn entry(position: *const $crate::plugin::Position) -> u32 {
            // SAFETY: the host calls it, with its position.
            unsafe { $crate::plugin::guest::line(position, $find) }
        }
        ::core::option::Option::Some(entry)
    }};
}

/// The function for [`Plugin::analyse`](crate::plugin::Plugin::analyse) that calls a safe
/// `fn(&Object) -> Result<Option<T>, Unserved>`, where `T` is [`Plain`](super::Plain): the facts.
#[macro_export]
macro_rules! analyse {
    ($find:expr) => {{
        unsafe extern "C" fn entry(object: *const $crate::plugin::ObjectFile, facts: *mut u8, room: usize) -> isize {
            // SAFETY: the host calls it, with its object and a place for that many bytes.
            unsafe { $crate::plugin::guest::analyse(object, facts, room, $find) }
        }
        ::core::option::Option::Some(entry)
    }};
}
/// Exports the plugin's entry ([`Entry`](crate::plugin::Entry)), which returns this static table, or null to a host
/// that is too old. Exported by the shipped object only (`panic = "abort"`): a program may link several plugins for
/// their layouts.
#[macro_export]
macro_rules! export_plugin {
    ($table:ident) => {
        $crate::export_plugin!(
            #[cfg_attr(panic = "abort", no_mangle)]
            $table
        );
    };
    // Without the symbol where the crate has this feature: several plugins are linked into one object then.
    ($table:ident, unless $feature:literal) => {
        $crate::export_plugin!(
            #[cfg_attr(all(panic = "abort", not(feature = $feature)), no_mangle)]
            $table
        );
    };
    (#[$attribute:meta] $table:ident) => {
        /// The plugin's entry ([`uunwind_core::plugin::Entry`]): its table, or null for a host that is too old.
        #[$attribute]
        pub extern "C" fn uu_plugin(host_abi: u32) -> *const $crate::plugin::Plugin {
            if host_abi >= $crate::plugin::ABI {
                &raw const $table
            } else {
                ::core::ptr::null()
            }
        }
    };
}
