//! What `libuunwind.so.0` exports, as `uu.h` declares and documents it.
#![allow(missing_docs, reason = "uu.h documents the fields")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use uunwind_core::plugin::{CRule, Visit};

/// `UU_ABI`.
pub const ABI: u32 = 1;

/// `struct uu_request`.
#[repr(C)]
pub struct Request {
    pub size: u32,
    pub flags: u32,
    pub ucontext: *const c_void,
    pub frames: *mut u64,
    pub capacity: usize,
    pub skip: u32,
    pub reserved: u32,
    pub frame: Option<unsafe extern "C" fn(*mut c_void, *const u64, usize) -> c_int>,
    pub user: *mut c_void,
    pub words: usize,
    pub count: u32,
    pub stop: u16,
    pub doubt: u16,
}

/// `struct uu_request` with the fields that came later.
#[repr(C)]
pub struct RequestWithCfas {
    pub request: Request,
    pub cfas: *mut u64,
}

impl RequestWithCfas {
    /// A request whose frames have CFAs, in the unused capacity of an empty vector.
    pub(crate) fn new(request: Request, cfas: &mut Vec<u64>) -> RequestWithCfas {
        let capacity = request.capacity.min(cfas.capacity());
        let request = Request { size: size_of::<RequestWithCfas>() as u32, capacity, ..request };
        RequestWithCfas { request, cfas: cfas.as_mut_ptr() }
    }
}

/// `struct uu_frame_info`.
#[repr(C)]
pub struct FrameInfo {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub line: u32,
    pub first_line: u32,
    pub omitted: u32,
    pub address: u64,
    pub file_address: u64,
    pub file_offset: u64,
    pub position: u64,
    pub build_id_len: u32,
    pub reserved: u32,
    pub build_id: [u8; 32],
    pub language: [u8; 16],
    pub function: [u8; 512],
    pub file: [u8; 1024],
}

/// `struct uu_thread`.
#[repr(C)]
pub struct Thread {
    pub tid: u32,
    pub error: c_int,
    pub name: [u8; 16],
    pub first: usize,
    pub words: usize,
    pub count: u32,
    pub stop: u16,
    pub doubt: u16,
}

/// `struct uu_delivery`.
#[repr(C)]
pub struct Delivery {
    pub size: u32,
    pub tid: u32,
    pub cookie: u64,
    pub frames: *const u64,
    pub words: usize,
    pub count: u32,
    pub stop: u16,
    pub doubt: u16,
}

/// `deliver` of `uu_client_register()`.
pub type Deliver = unsafe extern "C" fn(*mut c_void, *const Delivery);

/// `struct uu_symbol`.
#[repr(C)]
pub struct Symbol {
    pub next: *const Symbol,
    pub function: *const c_char,
    pub file: *const c_char,
    pub object: *const c_char,
    pub language: *const c_char,
    pub problem: *const c_char,
    pub address: u64,
    pub start: u64,
    pub line: u32,
    pub frame: u32,
    pub kind: u32,
    pub flags: u32,
}

/// `UU_SYMBOL_INLINED`.
pub const SYMBOL_INLINED: u32 = 1;
/// `UU_SYMBOL_CUT`.
pub const SYMBOL_CUT: u32 = 2;

/// `struct uu_function`.
#[repr(C)]
pub struct Function {
    pub start: u32,
    pub len: u32,
    pub unwind: u32,
    pub name_len: u32,
    pub name: *const c_char,
}

/// `UU_SETUP_BY_ITSELF`.
pub const SETUP_BY_ITSELF: u32 = 1;

/// `UU_WALK_*`, of `uu_request.flags`.
pub const WALK_NATIVE: u32 = 1;
/// See [`WALK_NATIVE`].
pub const WALK_WINDOW: u32 = 2;
/// See [`WALK_NATIVE`].
pub const WALK_SEMANTIC: u32 = 4;
/// See [`WALK_NATIVE`].
pub const WALK_NO_INTERPRETER: u32 = 8;
/// See [`WALK_NATIVE`].
pub const WALK_PROBED: u32 = 16;
/// See [`WALK_NATIVE`].
pub const WALK_TRUST_PLUGINS: u32 = 32;

/// `UU_INFO_CUT`, of `uu_frame_info.flags`.
pub const INFO_CUT: u32 = 8;
/// `UU_INFO_BY_CODE`, of `uu_frame_info.flags`.
pub const INFO_BY_CODE: u32 = 16;

/// `UU_CRASH_*`, flags of `uu_report_crashes()`.
pub const CRASH_JSON: u32 = 1;
/// See [`CRASH_JSON`].
pub const CRASH_FIRST: u32 = 2;
/// See [`CRASH_JSON`].
pub const CRASH_ONE_THREAD: u32 = 4;

/// `UU_LABEL*`: at most this number of labels of a thread.
pub const LABELS: usize = 16;
/// See [`LABELS`]: the most text of all of them, in bytes.
pub const LABEL_BYTES: usize = 1000;
/// See [`LABELS`]: the longest key, in bytes.
pub const LABEL_KEY: usize = 63;
/// See [`LABELS`]: the longest value, in bytes.
pub const LABEL_VALUE: usize = 255;

/// `UU_NO_UNWIND`.
pub const NO_UNWIND: u32 = u32::MAX;

/// `rule` of [`Window`].
pub type GiveRule = unsafe extern "C" fn(*mut c_void, u64, *mut CRule) -> u32;
/// `name` of [`Window`].
pub type GiveName = unsafe extern "C" fn(*mut c_void, u64, *mut u8, usize, *mut u64) -> usize;

/// `struct uu_window`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Window {
    pub size: u32,
    pub kind: u32,
    pub text: *const c_void,
    pub text_len: usize,
    pub user: *mut c_void,
    pub flags: u32,
    pub reserved0: u32,
    pub unwind: *const c_void,
    pub unwind_len: usize,
    pub functions: *const Function,
    pub functions_room: usize,
    pub published: *const u64,
    pub rule: Option<GiveRule>,
    pub step: Option<Visit>,
    pub name: Option<GiveName>,
    pub reserved: [u64; 3],
}

/// `UU_WINDOW_*`, of `enum uu_window_kind`.
pub const WINDOW_FRAME_POINTER: u32 = 1;
/// See [`WINDOW_FRAME_POINTER`].
pub const WINDOW_OPAQUE: u32 = 2;
/// See [`WINDOW_FRAME_POINTER`].
pub const WINDOW_EH_FRAME: u32 = 3;
/// See [`WINDOW_FRAME_POINTER`].
pub const WINDOW_SFRAME: u32 = 4;
/// See [`WINDOW_FRAME_POINTER`].
pub const WINDOW_RULE: u32 = 5;

/// See [`WINDOW_FRAME_POINTER`].
pub const WINDOW_STEPPER: u32 = 6;
/// See [`WINDOW_FRAME_POINTER`].
pub const WINDOW_CODE: u32 = 7;

/// `UU_WINDOW_GROWING`, of `uu_window.flags`.
pub const WINDOW_GROWING: u32 = 1;
/// `UU_WINDOW_DESCENDING`, of `uu_window.flags`.
pub const WINDOW_DESCENDING: u32 = 2;

/// `UU_RULE_*`, of `uu_rule.kind`.
pub const RULE_DEREF: u8 = 1;
/// See [`RULE_DEREF`].
pub const RULE_SIGNAL: u8 = 2;
/// See [`RULE_DEREF`].
pub const RULE_END: u8 = 3;

/// `struct uu_frame_record`.
#[repr(C)]
#[derive(Debug)]
pub struct FrameRecord {
    pub outer: *mut FrameRecord,
    pub activation: *const c_void,
    pub name: u32,
    pub line: AtomicU32,
}

/// The functions of the library that this crate calls, without their `uu_`.
pub struct Api {
    pub capture: unsafe extern "C" fn(*mut u64, usize, *const c_void, *mut u16) -> usize,
    pub capture_abandoned: unsafe extern "C" fn(),
    pub walk: unsafe extern "C" fn(*mut Request) -> c_int,
    pub thread_signal: unsafe extern "C" fn(c_int) -> c_int,
    pub walk_thread: unsafe extern "C" fn(u32, *mut Request, u64) -> c_int,
    pub walk_all: unsafe extern "C" fn(*mut Request, *mut Thread, usize, u64) -> c_int,
    pub client_register: unsafe extern "C" fn(Option<Deliver>, *mut c_void) -> c_int,
    pub client_unregister: unsafe extern "C" fn(c_int) -> c_int,
    pub trigger: unsafe extern "C" fn(c_int) -> u64,
    pub trigger_cancel: unsafe extern "C" fn() -> c_int,
    pub cookie_is_pending: unsafe extern "C" fn(u64) -> c_int,
    pub triggers_lost: unsafe extern "C" fn() -> u64,
    pub prepare_thread: unsafe extern "C" fn() -> c_int,
    pub describe: unsafe extern "C" fn(*const u64, *mut FrameInfo) -> c_int,
    pub symbolize: unsafe extern "C" fn(*const u64, usize, *mut *const Symbol) -> c_int,
    pub names_lost: unsafe extern "C" fn() -> u64,
    pub symbols_free: unsafe extern "C" fn(*const Symbol),
    pub stack_id: unsafe extern "C" fn(*const u64, usize) -> u32,
    pub stack_frames: unsafe extern "C" fn(u32, *mut u64, usize) -> usize,
    pub stack_ids_lost: unsafe extern "C" fn() -> u64,
    pub handle_faults: unsafe extern "C" fn() -> c_int,
    pub report_crashes: unsafe extern "C" fn(c_int, u32) -> c_int,
    pub report_crashes_to: unsafe extern "C" fn(*const c_char, u32) -> c_int,
    pub setup: unsafe extern "C" fn() -> c_int,
    pub setup_with: unsafe extern "C" fn(u32) -> c_int,
    pub register_window: unsafe extern "C" fn(*const Window) -> c_int,
    pub unlink_window: unsafe extern "C" fn(*const c_void, *mut u64) -> c_int,
    pub replace_windows: unsafe extern "C" fn(*const *const c_void, usize, *const Window, usize, *mut u64) -> c_int,
    pub seal_window: unsafe extern "C" fn(*const c_void) -> c_int,
    pub ticket: unsafe extern "C" fn() -> u64,
    pub synchronize: unsafe extern "C" fn(u64, u64) -> c_int,
    pub intern: unsafe extern "C" fn(*const c_char, *const c_char, u32) -> u32,
    pub publish_frames: unsafe extern "C" fn(*const AtomicPtr<FrameRecord>) -> c_int,
    pub mark_interpreter: unsafe extern "C" fn(*const c_void, usize) -> c_int,
    pub unmark_interpreter: unsafe extern "C" fn(*const c_void) -> c_int,
    pub record_start: unsafe extern "C" fn() -> c_int,
    pub record_stop: unsafe extern "C" fn() -> c_int,
    pub label_set: unsafe extern "C" fn(*const c_char, *const c_char) -> c_int,
    pub plugin_call: unsafe extern "C" fn(*const c_char, u32, *mut c_void, usize) -> c_int,
}
