//! Core files of a few hundred bytes, whole and damaged.

use super::notes::MappedFile;
use super::*;

const LOAD: u64 = 0x7000_0000_0000;

fn note(kind: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [5, content.len() as u32, kind].into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.extend(b"CORE\0\0\0\0");
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn prstatus(tid: u32, signal: u16, pc: u64) -> Vec<u8> {
    let mut bytes = vec![0; 336];
    bytes[12..14].copy_from_slice(&signal.to_le_bytes());
    bytes[32..36].copy_from_slice(&tid.to_le_bytes());
    // rip is the 17th register.
    bytes[112 + 16 * 8..][..8].copy_from_slice(&pc.to_le_bytes());
    note(1, &bytes)
}

fn file_note(unit: u64, files: &[(u64, u64, u64, &str)]) -> Vec<u8> {
    let mut words = vec![files.len() as u64, unit];
    files.iter().for_each(|(start, end, offset, _)| words.extend([*start, *end, *offset]));
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    files.iter().for_each(|file| bytes.extend(file.3.bytes().chain([0])));
    note(0x4649_4c45, &bytes)
}

/// A core file with these notes, and with memory at [`LOAD`], of which `mapped` bytes were mapped.
fn core(notes: &[Vec<u8>], memory: &[u8], mapped: u64) -> Vec<u8> {
    let notes = notes.concat();
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |out: &mut Vec<u8>, values: &[u16]| out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    half(&mut out, &[4, 62, 1, 0]);
    out.extend([0u64, 64, 0].iter().flat_map(|value| value.to_le_bytes()));
    half(&mut out, &[0, 0, 64, 56, 2, 0, 0, 0]);
    let mut header = |kind: u32, flags: u32, values: [u64; 6]| {
        out.extend([kind, flags].iter().flat_map(|value| value.to_le_bytes()));
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    };
    let begin = 64 + 2 * 56;
    let (len, size) = (notes.len() as u64, memory.len() as u64);
    header(4, 0, [begin, 0, 0, len, 0, 4]);
    header(1, 5, [begin + len, LOAD, 0, size, mapped, 1]);
    out.extend(notes);
    out.extend(memory);
    out
}

fn read(bytes: Vec<u8>) -> Result<CoreFile, String> {
    CoreFile::of_bytes(Path::new("c"), bytes).map_err(|error| error.to_string())
}

fn whole() -> Vec<u8> {
    let mut info = vec![0; 128];
    info[0] = 11;
    info[8] = 1;
    info[16..24].copy_from_slice(&0x10u64.to_le_bytes());
    let files = [(LOAD + 0x2000, LOAD + 0x3000, 1, "/bin/a b"), (LOAD, LOAD + 0x1000, 0, "/bin/a b")];
    let notes = [prstatus(7, 11, 1), note(0x5349_4749, &info), prstatus(9, 11, 2), file_note(4096, &files)];
    core(&notes, &[1, 2, 3, 4], 0x1000)
}

#[test]
fn threads_signal_files_and_memory_are_read() {
    let core = read(whole()).expect("a core file");
    let threads: Vec<_> = core.notes.threads.iter().map(|t| (t.tid, t.signal, t.registers.rip)).collect();
    assert_eq!(threads, [(7, 11, 1), (9, 11, 2)]);
    assert_eq!(core.notes.signal.map(|signal| signal.to_string()).as_deref(), Some("SIGSEGV at address 0x10"));
    let file = |start, end, offset| MappedFile { start, end, offset, name: b"/bin/a b".to_vec() };
    assert_eq!(core.notes.files, [file(LOAD, LOAD + 0x1000, 0), file(LOAD + 0x2000, LOAD + 0x3000, 4096)]);
    let mut out = [0; 8];
    assert_eq!((core.memory(LOAD + 1, &mut out), out), (3, [2, 3, 4, 0, 0, 0, 0, 0]));
    assert_eq!(core.memory(LOAD + 4, &mut out), 0, "mapped, and not in the file");
    assert_eq!((core.memory(LOAD - 1, &mut out), core.memory(u64::MAX, &mut out)), (0, 0));
    assert_eq!((core.is_code(LOAD + 0xfff), core.is_code(LOAD + 0x1000)), (Some(true), None));
    assert!(core.troubles.is_empty(), "{:?}", core.troubles);
}

/// gdb counts the places in files in bytes, and stops a process by SIGSTOP to write its core file.
#[test]
fn what_gdb_writes_is_read() {
    let notes = [prstatus(7, 19, 1), file_note(1, &[(LOAD, LOAD + 0x1000, 0x3000, "/bin/a")])];
    let core = read(core(&notes, &[], 0)).expect("a core file");
    assert_eq!((core.notes.signal, core.notes.files[0].offset), (None, 0x3000));
}

#[test]
fn what_is_no_core_file_is_refused_with_its_reason() {
    let refused = |bytes: Vec<u8>| read(bytes).err().expect("refused");
    assert_eq!(refused(Vec::new()), "c: not a core file: it is empty");
    assert_eq!(refused(b"text".to_vec()), "c: not a core file: it is no ELF file");
    assert!(refused(vec![0x28, 0xb5, 0x2f, 0xfd, 0]).contains("zstd -d"));
    let changed = |at: usize, value: u8| {
        let mut bytes = whole();
        bytes[at] = value;
        refused(bytes)
    };
    assert_eq!(changed(16, 2), "c: not a core file: it is a program or a library");
    assert_eq!(changed(18, 183), "c: a core file of an AArch64 process; uu reads those of x86-64 processes");
    assert!(changed(4, 1).contains("a 32-bit process"));
    assert_eq!(changed(54, 32), "c: damaged core file: its program headers have 32 bytes each, not 56");
    assert!(changed(56, 200).contains("its 200 program headers reach to offset 0x2c00"));
    assert!(refused(whole()[..40].to_vec()).contains("cut after 40 bytes"));
    let notes = [note(6, &[0; 32])];
    assert!(refused(core(&notes, &[], 0)).contains("no NT_PRSTATUS note"));
    // More than 65,534 program headers: their number is in the first section header, which is not there.
    let mut many = whole();
    many[56..58].copy_from_slice(&[0xff, 0xff]);
    many[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refused(many).contains("first section header, at offset 0xffffffffffffffff"));
}

#[test]
fn damaged_parts_are_left_out_and_named() {
    let troubles = |notes: &[Vec<u8>]| read(core(notes, &[], 0)).expect("threads").troubles.join("\n");
    let thread = prstatus(7, 0, 1);
    assert!(troubles(&[thread.clone(), thread.clone()]).contains("two threads 7"));
    let mut long = thread.clone();
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(troubles(&[thread.clone(), long.clone()]).contains("reaches beyond its list"));
    long[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(troubles(&[thread.clone(), long]).contains("reaches beyond its list"));
    assert!(troubles(&[thread.clone(), note(1, &[0; 100])]).contains("too short"));
    let mut files = file_note(1, &[(1, 2, 0, "/a")]);
    files[20..28].copy_from_slice(&(1u64 << 60).to_le_bytes());
    assert!(troubles(&[thread.clone(), files]).contains("1152921504606846976 files in 43 bytes"));
    assert!(troubles(&[thread, file_note(u64::MAX, &[(1, 2, 2, "/a")])]).contains("0 of 1 files make sense"));
    let mut cut = whole();
    cut.truncate(cut.len() - 3);
    assert!(read(cut).expect("threads").troubles[0].starts_with("3 bytes of memory lie beyond the end"));
}

/// Sizes of which two together exceed 64 bits.
#[test]
fn sizes_beyond_all_memory_are_counted_as_missing() {
    let mut bytes = whole();
    // Both program headers become memory: type at 0, address at 16, size in the file at 32, in memory at 40.
    for header in [64, 64 + 56] {
        let mut put = |at: usize, value: u64, len: usize| {
            bytes[header + at..][..len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(0, 1, 4);
        put(16, 0, 8);
        put(32, u64::MAX - 8, 8);
        put(40, 0, 8);
    }
    assert!(read(bytes).err().is_some_and(|error| error.contains("and the file is cut")));
}

/// Each byte of a small core file, damaged in several ways, and each length: an answer or an error.
#[test]
fn any_damage_gives_an_answer() {
    let whole = whole();
    for at in 0..whole.len() {
        let _ = read(whole[..at].to_vec());
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let _ = read(bytes).map(|core| core.memory(LOAD, &mut [0; 64]));
        }
    }
}
