//! A program that takes part in a recording without uu's signal code: it finds the session through the environment,
//! claims blocks and writes records, as the preloaded object does.

use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uunwind_core::frame::{native_word, semantic_word, FLAG_EXACT};
use uunwind_core::stop_reason::StopReason;
use uunwind_elf::Image;
use uunwind_random::Random;
use uunwind_ring::layout::*;
use uunwind_ring::record::*;
use uunwind_ring::samples::{Past, Sample};
use uunwind_ring::writer::RingWriter;
use uunwind_ring::ENV_SESSION;
use uunwind_symbolize::Elf;

/// Environment variable that selects what the target does.
pub const ENV_ROLE: &str = "UU_FAKE_TARGET";

const HEADER: RecordHeader = RecordHeader { size: 0, kind: 0, mark: 0 };

/// The function that samples claim to have interrupted.
#[inline(never)]
pub extern "C" fn interrupted_function(n: u64) -> u64 {
    std::hint::black_box(n).wrapping_mul(3)
}

/// The function that samples claim to have called it.
#[inline(never)]
pub extern "C" fn calling_function(n: u64) -> u64 {
    interrupted_function(std::hint::black_box(n)).wrapping_add(1)
}

/// A mapped session, in which this process has claimed a block.
pub struct Target {
    base: *mut u8,
    process_block: usize,
}

/// A thread of the target.
pub struct TargetThread {
    /// The block's number.
    pub block: usize,
    header: &'static ThreadBlock,
    writer: RingWriter<'static>,
    past: Box<Past>,
    sequence: u32,
}

impl Target {
    /// Maps the session named by the environment; `None` when there is none.
    pub fn join() -> Option<Target> {
        let setting = std::env::var(ENV_SESSION).ok()?;
        let mut parts = setting.split(':');
        let (recorder, fd) = (parts.next()?, parts.next()?);
        let path = std::ffi::CString::new(format!("/proc/{recorder}/fd/{fd}")).ok()?;
        // SAFETY: plain system calls; the mapping stays for the life of the process.
        let base = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            assert!(fd >= 0, "the session can be opened");
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), SESSION_BYTES, protection, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let mut target = Target { base: base.cast(), process_block: 0 };
        target.claim_process(0);
        Some(target)
    }

    /// Marks that an object of another version has found the session.
    pub fn is_of_version(&self, version: u32) {
        // SAFETY: the word lies in the first page, which is mapped for ever.
        unsafe { &*self.base.add(OTHER_VERSION_OFFSET).cast::<AtomicU32>() }.store(version, Ordering::Relaxed);
    }

    fn state(&self, block: usize) -> &'static AtomicU32 {
        // SAFETY: the states are mapped for ever.
        unsafe { &*self.base.add(STATES_OFFSET).cast::<AtomicU32>().add(block) }
    }

    fn block(&self, block: usize) -> *mut u8 {
        // SAFETY: the block lies inside the mapping.
        unsafe { self.base.add(DATA_OFFSET + block * BLOCK_BYTES) }
    }

    fn claim(&self) -> usize {
        let free = |block: &usize| {
            self.state(*block).compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        (0..BLOCKS).find(free).expect("a free block")
    }

    /// Claims the process's block, again after a fork.
    pub fn claim_process(&mut self, origin: u32) {
        self.process_block = self.claim();
        let block = self.block(self.process_block).cast::<ProcessBlock>();
        // SAFETY: the block was just claimed: it is ours alone.
        unsafe {
            (*block).pid = std::process::id();
            (*block).parent = libc::getppid() as u32;
            (*block).origin = origin;
            (*block).start_time = now();
            (*block).plugins[1] = *b"python\0\0\0\0\0\0\0\0\0\0";
            (*block).nested = AtomicU32::new(5);
        }
        self.state(self.process_block).store(LIVE_PROCESS, Ordering::Release);
    }

    /// Claims a thread's block under a made-up or real thread id.
    pub fn thread(&self, tid: u32, name: &str) -> TargetThread {
        let block = self.claim();
        let at = self.block(block);
        // SAFETY: the block was just claimed: it is ours alone; the ring lies inside it.
        let (header, writer) = unsafe {
            let fields = at.cast::<ThreadBlock>();
            (*fields).tid = tid;
            (*fields).process = self.process_block as u32;
            (*fields).pid = std::process::id();
            let header = &*fields;
            (header, RingWriter::new(header, at.add(RING_OFFSET)))
        };
        self.state(block).store(LIVE_THREAD, Ordering::Release);
        // SAFETY: a Past that has written nothing is all zero.
        let past = Box::new(unsafe { std::mem::zeroed() });
        let mut thread = TargetThread { block, header, writer, past, sequence: 0 };
        thread.name(name);
        thread
    }

    /// Writes random words all over the session: block states, headers, rings.
    pub fn storm(&self, rounds: u64) {
        let mut numbers = Random::new(0x9e37_79b9_97f4_a7c5);
        for round in 0..rounds {
            let random = numbers.number();
            let block = (random >> 8) as usize % 64;
            let (limit, base) = match round % 4 {
                // Sometimes a plausible state, so that the recorder examines the rest.
                0 => {
                    self.state(block).store((random >> 40) as u32 % 6, Ordering::Release);
                    continue;
                }
                1 | 2 => (512, self.block(block)),
                // SAFETY: the ring lies inside the block.
                _ => (RING_BYTES, unsafe { self.block(block).add(RING_OFFSET) }),
            };
            let at = (random >> 20) as usize % (limit / 8) * 8;
            let value = if random & 16 == 0 { random % 4096 } else { random };
            // SAFETY: inside the block, 8-aligned; shared words are written as atomics.
            unsafe { (*base.add(at).cast::<AtomicU64>()).store(value, Ordering::Relaxed) };
        }
    }

    /// Marks a thread as ended.
    pub fn end(&self, thread: &TargetThread) {
        self.state(thread.block).store(ENDED_THREAD, Ordering::Release);
    }

    /// Waits until the recorder has processed all that was written so far. It goes through the blocks in order, and a
    /// new thread that ends at once comes last.
    pub fn settle(&self) {
        let last = self.thread(std::process::id() + 1, "last");
        self.end(&last);
        self.wait_free(last.block);
    }

    /// Waits until the recorder has freed a block.
    pub fn wait_free(&self, block: usize) {
        while self.state(block).load(Ordering::Acquire) != FREE {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

impl TargetThread {
    fn name(&mut self, text: &str) {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        let mut r = self.writer.reserve(RecordType::Thread, size_of::<ThreadRecord>()).expect("room");
        r.fixed(ThreadRecord { header: HEADER, name });
        r.commit();
    }

    /// Sends this program as an object. The record is written during a walk, so later than the time of its sample.
    pub fn own_object(&mut self) {
        let exe = std::env::current_exe().expect("own path");
        let elf = Elf::read(&exe).expect("own ELF file");
        let mappings = uunwind_elf::maps::own().expect("own mappings");
        let own: Vec<_> = mappings.filter(|mapping| mapping.name == exe.as_os_str().as_encoded_bytes()).collect();
        let (start, end) = (own[0].start, own[own.len() - 1].end);
        let key = uunwind_elf::key_of(&Image::open(&exe).expect("this program")).0;
        self.object(now(), start, start, end, &elf.build_id, b"", key);
    }

    /// Sends an object record with these fields.
    #[expect(clippy::too_many_arguments, reason = "the fields of the record, in its order")]
    pub fn object(&mut self, time: u64, bias: u64, start: u64, end: u64, build_id: &[u8], path: &[u8], facts_key: u64) {
        let size = size_of::<ObjectRecord>() + padded(build_id.len()) + padded(path.len());
        let mut r = self.writer.reserve(RecordType::Object, size).expect("room");
        let (build_id_bytes, path_bytes) = (build_id.len() as u32, path.len() as u32);
        r.fixed(ObjectRecord { header: HEADER, time, bias, start, end, build_id_bytes, path_bytes, facts_key });
        assert!(r.bytes(build_id) && (path.is_empty() || r.bytes(path)));
        r.commit();
    }

    /// Sends the name of a code object whose positions 0-3 are line 10 and whose positions 4-7 are line 12.
    pub fn python_name(&mut self, id: u32, name: &str, file: &str) {
        let table = [0x80 | (10 << 3) | 1, 0, 0, 0x80 | (12 << 3) | 1, 0, 0];
        let size = size_of::<NameRecord>() + padded(name.len()) + padded(file.len()) + padded(table.len());
        let mut r = self.writer.reserve(RecordType::Name, size).expect("room");
        r.fixed(NameRecord {
            header: HEADER,
            id,
            plugin: 1,
            code: 0xc0de_0000 + u64::from(id),
            fingerprint: 1,
            first_line: 10,
            table_kind: 1,
            name_bytes: name.len() as u32,
            file_bytes: file.len() as u32,
            table_bytes: table.len() as u32,
            name_width: 1,
            name_utf8: 1,
            file_width: 1,
            file_utf8: 1,
        });
        assert!(r.bytes(name.as_bytes()) && r.bytes(file.as_bytes()) && r.bytes(&table));
        r.commit();
    }

    /// Sends a sample; false when the ring is full, which is counted.
    pub fn sample(&mut self, words: &[u64], weight: u32, stop: StopReason, flags: u8) -> bool {
        self.sequence += 1;
        let (kind, sequence) = (SampleKind::Timer.number(), self.sequence);
        let sample = Sample { time: now(), weight, sequence, stop: stop.number(), kind, flags };
        let written = self.past.write(&self.writer, &sample, words);
        if !written {
            self.header.lost.fetch_add(1, Ordering::Relaxed);
            self.header.lost_weight.fetch_add(u64::from(weight), Ordering::Relaxed);
        }
        written
    }

    /// Makes the ring's write position invalid.
    pub fn scribble(&self, head: u64) {
        self.header.head.store(head, Ordering::Release);
    }
}

/// A Python frame between two native frames of this program.
pub fn mixed_stack(name: u32, position: u64) -> [u64; 4] {
    let leaf = interrupted_function as *const () as u64;
    let caller = calling_function as *const () as u64;
    [native_word(leaf, FLAG_EXACT), semantic_word(1, name), position, native_word(caller + 1, 0)]
}

/// CLOCK_MONOTONIC, ns.
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
