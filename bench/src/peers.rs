//! The unwinders that are compared. Each captures the frames of its own `capture` method and of its caller, then those
//! of the chain. `black_box` keeps the call of the unwinder from becoming a jump, which would take the method off the
//! stack.

use crate::chains::Flavour;
use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder};
use object::{Object, ObjectSection};
use std::ffi::{c_int, c_void, CString};
use std::hint::black_box;

/// An unwinder.
pub trait Peer {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// The build of the functions that it walks.
    fn flavour(&self) -> Flavour {
        Flavour::Plain
    }

    /// Fills `frames` with addresses, innermost first. Returns how many there are.
    fn capture(&mut self, frames: &mut [u64]) -> usize;

    /// Whether it captures as many frames as requested, and none of its own before the chain's.
    fn is_blind(&self) -> bool {
        false
    }

    /// A capture in a signal handler: of the interrupted code, or else of the handler itself.
    #[inline(never)]
    fn capture_interrupted(&mut self, frames: &mut [u64], _ucontext: *const u8) -> usize {
        self.capture(frames)
    }
}

/// All peers; the floor comes first.
///
/// # Panics
/// If one of them is not available: a table without it would say too little.
pub fn all(libuunwind: &str) -> Vec<Box<dyn Peer>> {
    let uu = Uu::open(libuunwind);
    let framed = Uu { name: "uu_capture, of the floor's code", flavour: Flavour::Framed, ..uu };
    vec![
        Box::new(FramePointers),
        Box::new(uu),
        Box::new(framed),
        Box::new(Libunwind::open()),
        Box::new(Libgcc),
        Box::new(Framehop::new()),
    ]
}

/// The floor alone.
pub fn floor() -> Box<dyn Peer> {
    Box::new(FramePointers)
}

/// nongnu libunwind alone.
pub fn libunwind() -> Box<dyn Peer> {
    Box::new(Libunwind::open())
}

/// What a program calls before it captures.
#[derive(Clone, Copy)]
pub enum Mode {
    /// Nothing.
    Nothing,
    /// uu_handle_faults().
    Handled,
    /// That, and uu_setup().
    Prepared,
}

/// This project's captures in such a program. `through`: in a handler, without its ucontext.
pub fn capture_in(mode: Mode, library: &str, through: bool) -> Box<dyn Peer> {
    let uu = Uu::in_mode(mode, library);
    if through {
        Box::new(Through(uu))
    } else {
        Box::new(uu)
    }
}

/// This project's whole walks in such a program.
pub fn walk_in(mode: Mode, library: &str) -> Box<dyn Peer> {
    Uu::in_mode(mode, library);
    // SAFETY: the type is that of uu.h.
    Box::new(Walk(unsafe { std::mem::transmute::<*mut c_void, UuWalk>(symbol(library, "uu_walk")) }))
}

/// The CPUs that this thread may use.
pub fn cpus() -> Vec<usize> {
    // SAFETY: the set is a valid value, and has the size that the call names.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Binds this thread to a CPU.
pub fn bind(cpu: usize) {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

/// The peers of a program that has prepared nothing.
pub fn unprepared(libuunwind: &str) -> Vec<Box<dyn Peer>> {
    vec![Box::new(FramePointers), Box::new(Uu::unprepared(libuunwind)), Box::new(Libgcc)]
}

/// The calls for whole stacks and their ids, of native chains.
pub fn whole(libuunwind: &str) -> Vec<Box<dyn Peer>> {
    let uu = Uu::open(libuunwind);
    // SAFETY: the types are those of uu.h.
    let (walk, id) = unsafe {
        let (walk, id) = (symbol(libuunwind, "uu_walk"), symbol(libuunwind, "uu_stack_id"));
        (std::mem::transmute::<*mut c_void, UuWalk>(walk), std::mem::transmute::<*mut c_void, UuStackId>(id))
    };
    vec![Box::new(FramePointers), Box::new(uu), Box::new(Walk(walk)), Box::new(WithId { uu, id })]
}

type UuWalk = unsafe extern "C" fn(*mut Request) -> c_int;
type UuStackId = unsafe extern "C" fn(*const u64, usize) -> u32;

/// `struct uu_request`.
#[repr(C)]
struct Request {
    size: u32,
    flags: u32,
    ucontext: *const c_void,
    frames: *mut u64,
    capacity: usize,
    skip: u32,
    reserved: u32,
    frame: *const c_void,
    user: *const c_void,
    words: usize,
    count: u32,
    stop: u16,
    doubt: u16,
}

/// The whole stack, which here has native frames only.
struct Walk(UuWalk);

impl Peer for Walk {
    fn name(&self) -> &'static str {
        "uu_walk"
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        let mut request = Request {
            size: size_of::<Request>() as u32,
            flags: 0,
            ucontext: std::ptr::null(),
            frames: frames.as_mut_ptr(),
            capacity: frames.len(),
            skip: 0,
            reserved: 0,
            frame: std::ptr::null(),
            user: std::ptr::null(),
            words: 0,
            count: 0,
            stop: 0,
            doubt: 0,
        };
        // SAFETY: a valid request; the buffer has the capacity that it names.
        assert_eq!(unsafe { (self.0)(&mut request) }, 0, "uu_walk");
        black_box(request.words)
    }
}

/// A capture, and the id of the stack, which is known from the second time on.
struct WithId {
    uu: Uu,
    id: UuStackId,
}

impl Peer for WithId {
    fn name(&self) -> &'static str {
        "uu_capture, then uu_stack_id"
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        let words = frames.len();
        // SAFETY: the buffer has the capacity that the call names.
        let taken = unsafe { (self.uu.capture)(frames.as_mut_ptr(), words, std::ptr::null(), std::ptr::null_mut()) };
        // SAFETY: as many words were written.
        assert_ne!(unsafe { (self.id)(frames.as_ptr(), taken) }, 0, "uu_stack_id");
        black_box(taken)
    }
}

pub fn symbol(library: &str, name: &str) -> *mut c_void {
    let (library_c, name_c) = (CString::new(library).expect("no NUL"), CString::new(name).expect("no NUL"));
    // SAFETY: both are NUL-terminated; the library's constructors are trusted.
    let found = unsafe {
        let handle = libc::dlopen(library_c.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{library} cannot be opened");
        libc::dlsym(handle, name_c.as_ptr())
    };
    assert!(!found.is_null(), "{library} has no {name}");
    found
}

extern "C" {
    fn framed_walk(frames: *mut u64, count: usize) -> usize;
    fn framed_walk_from(frames: *mut u64, count: usize, frame: *const u64) -> usize;
}

/// One dependent load a frame: the floor.
struct FramePointers;

impl Peer for FramePointers {
    fn name(&self) -> &'static str {
        "frame pointers (floor)"
    }

    fn flavour(&self) -> Flavour {
        Flavour::Framed
    }

    fn is_blind(&self) -> bool {
        true
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        // SAFETY: every function between here and the base of the chain keeps a frame pointer, and `frames` ends there.
        black_box(unsafe { framed_walk(frames.as_mut_ptr(), frames.len()) })
    }

    fn capture_interrupted(&mut self, frames: &mut [u64], ucontext: *const u8) -> usize {
        // SAFETY: the kernel's ucontext; and as above.
        unsafe {
            let registers = &(*ucontext.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let fp = registers[libc::REG_RBP as usize] as *const u64;
            black_box(framed_walk_from(frames.as_mut_ptr(), frames.len(), fp))
        }
    }
}

type HandleFaults = unsafe extern "C" fn() -> c_int;
type UuCapture = unsafe extern "C" fn(*mut u64, usize, *const u8, *mut u16) -> usize;

/// This project, through its C interface.
#[derive(Clone, Copy)]
struct Uu {
    name: &'static str,
    flavour: Flavour,
    capture: UuCapture,
}

impl Uu {
    /// In a program that has prepared nothing: neither uu_setup() nor uu_handle_faults().
    fn unprepared(library: &str) -> Uu {
        // SAFETY: the type is that of uu.h.
        let capture = unsafe { std::mem::transmute::<*mut c_void, UuCapture>(symbol(library, "uu_capture")) };
        Uu { name: "uu_capture, nothing prepared", flavour: Flavour::Plain, capture }
    }

    fn in_mode(mode: Mode, library: &str) -> Uu {
        if let Mode::Handled | Mode::Prepared = mode {
            // SAFETY: int uu_handle_faults(void).
            let refused =
                unsafe { std::mem::transmute::<*mut c_void, HandleFaults>(symbol(library, "uu_handle_faults"))() };
            assert_eq!(refused, 0, "uu_handle_faults");
        }
        if let Mode::Prepared = mode {
            return Uu::open(library);
        }
        Uu { name: "uu_capture", ..Uu::unprepared(library) }
    }

    fn open(library: &str) -> Uu {
        // SAFETY: int uu_handle_faults(void). With it, pages are not probed before they are read, as under the sampler.
        let refused = unsafe {
            let handle_faults = std::mem::transmute::<*mut c_void, HandleFaults>(symbol(library, "uu_handle_faults"));
            handle_faults()
        };
        assert_eq!(refused, 0, "uu_handle_faults");
        // SAFETY: int uu_setup(void): rule tables for the chains' functions, as the recorder makes them for a program.
        let tables = unsafe {
            let setup = std::mem::transmute::<*mut c_void, HandleFaults>(symbol(library, "uu_setup"));
            setup()
        };
        assert!(tables > 0, "uu_setup: {tables}");
        // SAFETY: the type is that of uu.h.
        let capture = unsafe { std::mem::transmute::<*mut c_void, UuCapture>(symbol(library, "uu_capture")) };
        Uu { name: "uu_capture", flavour: Flavour::Plain, capture }
    }
}

impl Peer for Uu {
    fn name(&self) -> &'static str {
        self.name
    }

    fn flavour(&self) -> Flavour {
        self.flavour
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        // SAFETY: the buffer has the capacity that the call names.
        black_box(unsafe { (self.capture)(frames.as_mut_ptr(), frames.len(), std::ptr::null(), std::ptr::null_mut()) })
    }

    fn capture_interrupted(&mut self, frames: &mut [u64], ucontext: *const u8) -> usize {
        // SAFETY: as above; the kernel's ucontext.
        black_box(unsafe { (self.capture)(frames.as_mut_ptr(), frames.len(), ucontext, std::ptr::null_mut()) })
    }
}

/// The same, called by a signal handler without the ucontext: through the signal frame, as the other unwinders do it.
pub struct Through(Uu);

impl Through {
    pub fn open(library: &str) -> Through {
        Through(Uu { name: "uu_capture, through the signal frame", ..Uu::open(library) })
    }
}

impl Peer for Through {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        let words = frames.len();
        // SAFETY: the buffer has the capacity that the call names.
        black_box(unsafe { (self.0.capture)(frames.as_mut_ptr(), words, std::ptr::null(), std::ptr::null_mut()) })
    }
}

type UnwBacktrace = unsafe extern "C" fn(*mut u64, c_int) -> c_int;

/// nongnu libunwind's fast trace.
struct Libunwind {
    backtrace: UnwBacktrace,
}

impl Libunwind {
    fn open() -> Libunwind {
        // SAFETY: int unw_backtrace(void **, int).
        Libunwind {
            backtrace: unsafe {
                std::mem::transmute::<*mut c_void, UnwBacktrace>(symbol("libunwind.so.8", "unw_backtrace"))
            },
        }
    }
}

impl Peer for Libunwind {
    fn name(&self) -> &'static str {
        "libunwind (nongnu) unw_backtrace"
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        // SAFETY: the buffer has the capacity that the call names.
        let count = unsafe { (self.backtrace)(frames.as_mut_ptr(), frames.len() as c_int) };
        count.max(0) as usize
    }
}

extern "C-unwind" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
}

/// libgcc's unwinder, which C++ exceptions use.
pub struct Libgcc;

struct Filling<'a> {
    frames: &'a mut [u64],
    count: usize,
}

extern "C" fn fill(context: *mut c_void, argument: *mut c_void) -> c_int {
    const NO_REASON: c_int = 0;
    const END_OF_STACK: c_int = 5;
    // SAFETY: `capture` passes its Filling, libgcc its context.
    let (filling, address) = unsafe { (&mut *argument.cast::<Filling<'_>>(), _Unwind_GetIP(context)) };
    match filling.frames.get_mut(filling.count) {
        Some(place) => *place = address,
        None => return END_OF_STACK,
    }
    filling.count += 1;
    if filling.count == filling.frames.len() {
        END_OF_STACK
    } else {
        NO_REASON
    }
}

impl Peer for Libgcc {
    fn name(&self) -> &'static str {
        "libgcc _Unwind_Backtrace"
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        let mut filling = Filling { frames, count: 0 };
        // SAFETY: the argument is what `fill` expects, and outlives the call.
        unsafe { _Unwind_Backtrace(fill, (&raw mut filling).cast()) };
        filling.count
    }
}

/// No unwinder: the least work of any that replays a cached stack, word by word. It does not check where its frames
/// begin or whose they are.
#[derive(Default)]
pub struct Least {
    /// Addresses of the return addresses, and their values.
    words: Vec<(u64, u64)>,
    frames: Vec<u64>,
}

impl Least {
    /// Finds the stack words of `count` frames: that of `capture`, whose frame pointer this is, and its callers'.
    #[inline(never)]
    fn learn(&mut self, fp: *const u64, count: usize) {
        // SAFETY: the frame is there as long as this is called by it.
        let mut sp = unsafe { fp.add(1) };
        // SAFETY: as above.
        let returns = unsafe { sp.read() };
        let mut frames = vec![0; count + 8];
        let taken = Libgcc.capture(&mut frames);
        let caller = frames[..taken].iter().position(|word| *word == returns).expect("it calls this");
        self.frames = frames[caller - 1..taken].iter().take(count).copied().collect();
        self.words.clear();
        for word in &self.frames[1..] {
            // SAFETY: each of them is on the stack, above the previous one.
            unsafe {
                while sp.read_volatile() != *word {
                    sp = sp.add(1);
                }
                self.words.push((sp as u64, *word));
                sp = sp.add(1);
            }
        }
    }
}

impl Peer for Least {
    fn name(&self) -> &'static str {
        "remembered words compared and copied, and nothing else"
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        // SAFETY: words of this thread's stack, which is mapped up to its base.
        let same = |(at, was): &(u64, u64)| unsafe { (*at as *const u64).read_volatile() == *was };
        if self.frames.len() != frames.len() || !self.words.iter().all(same) {
            let fp: *const u64;
            // SAFETY: reads the frame pointer, which all of this crate keeps.
            unsafe { std::arch::asm!("mov {}, rbp", out(reg) fp, options(nomem, nostack, preserves_flags)) };
            self.learn(fp, frames.len());
        }
        frames.copy_from_slice(black_box(&self.frames));
        self.frames.len()
    }
}

type Native = framehop::x86_64::UnwinderX86_64<Vec<u8>, MustNotAllocateDuringUnwind>;
type Cache = framehop::x86_64::CacheX86_64<MustNotAllocateDuringUnwind>;

/// framehop, with the objects that are loaded now.
struct Framehop {
    unwinder: Native,
    cache: Cache,
    /// Of the main thread, exclusive.
    stack_end: u64,
}

impl Framehop {
    fn new() -> Framehop {
        let mut unwinder = Native::new();
        let add: *mut c_void = (&raw mut unwinder).cast();
        // SAFETY: `add_object` gets the unwinder as its argument.
        unsafe { libc::dl_iterate_phdr(Some(add_object), add) };
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel's list of mappings");
        let range = maps.lines().find(|line| line.ends_with("[stack]")).and_then(|line| line.split(['-', ' ']).nth(1));
        let stack_end = range.and_then(|end| u64::from_str_radix(end, 16).ok()).expect("a main thread's stack");
        Framehop { unwinder, cache: Cache::new_in(), stack_end }
    }
}

unsafe extern "C" fn add_object(info: *mut libc::dl_phdr_info, _: usize, argument: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid info, `Framehop::new` its unwinder.
    let (info, unwinder) = unsafe { (&*info, &mut *argument.cast::<Native>()) };
    // SAFETY: libc keeps the name NUL-terminated.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
    let path = if name.is_empty() { "/proc/self/exe".to_owned() } else { name.clone() };
    let Ok(data) = std::fs::read(&path) else { return 0 };
    let file = object::File::parse(&*data).expect("what is loaded is an ELF file");
    let section = |name: &str| file.section_by_name(name);
    let range = |name: &str| section(name).map(|s| s.address()..s.address() + s.size());
    let bytes = |name: &str| section(name).and_then(|s| s.data().ok()).map(<[u8]>::to_vec);
    let end = file.sections().map(|s| s.address() + s.size()).max().unwrap_or(0);
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: bytes(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        ..Default::default()
    };
    let base = info.dlpi_addr;
    unwinder.add_module(Module::new(name, base..base + end, base, sections));
    0
}

impl Peer for Framehop {
    fn name(&self) -> &'static str {
        "framehop 0.16 (no allocation)"
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        let (pc, sp, fp): (u64, u64, u64);
        // SAFETY: reads registers.
        unsafe {
            std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp,
                options(nomem, nostack, preserves_flags));
        }
        // It loses registers in frames that align themselves, and then asks for words from anywhere.
        let stack = sp..self.stack_end;
        let mut read = |address: u64| match stack.contains(&address) && address.is_multiple_of(8) {
            // SAFETY: a word of this thread's stack.
            true => Ok(unsafe { *(address as *const u64) }),
            false => Err(()),
        };
        let registers = framehop::x86_64::UnwindRegsX86_64::new(pc, sp, fp);
        let mut walk = self.unwinder.iter_frames(pc, registers, &mut self.cache, &mut read);
        let mut count = 0;
        while let (Some(place), Ok(Some(frame))) = (frames.get_mut(count), walk.next()) {
            *place = frame.address();
            count += 1;
        }
        count
    }
}
