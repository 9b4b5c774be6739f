use super::*;
use std::sync::atomic::Ordering;
use uunwind_random::Random;
use uunwind_ring::layout::{ThreadBlock, RING_BYTES};
use uunwind_ring::writer::RingWriter;

/// A ring as a target writes it: one record of each kind.
fn written() -> Vec<u8> {
    // SAFETY: all-zero is a valid ThreadBlock.
    let block: Box<ThreadBlock> = Box::new(unsafe { std::mem::zeroed() });
    let mut ring = vec![0u64; RING_BYTES / 8];
    // SAFETY: the ring has RING_BYTES, is 8-aligned and used by this writer only.
    let writer = unsafe { RingWriter::new(&block, ring.as_mut_ptr().cast()) };
    let header = RecordHeader::default();
    let mut name = [0; 16];
    name[..6].copy_from_slice(b"worker");
    let mut r = writer.reserve(RecordType::Thread, 64).expect("room");
    r.fixed(ThreadRecord { header, name });
    r.commit();
    let mut r = writer.reserve(RecordType::Object, 256).expect("room");
    let (build_id_bytes, path_bytes) = (3, 9);
    let object = ObjectRecord { header, time: 1, bias: 2, start: 3, end: 4, build_id_bytes, path_bytes, facts_key: 5 };
    r.fixed(object);
    assert!(r.bytes(&[7, 8, 9]) && r.bytes(b"/lib/x.so"));
    r.commit();
    let mut r = writer.reserve(RecordType::Name, 256).expect("room");
    r.fixed(NameRecord {
        header,
        id: 11,
        plugin: 1,
        code: 12,
        fingerprint: 13,
        first_line: 14,
        table_kind: 1,
        name_bytes: 6,
        file_bytes: 4,
        table_bytes: 2,
        name_width: 2,
        name_utf8: 0,
        file_width: 1,
        file_utf8: 1,
    });
    assert!(r.bytes(&[0x3b, 0x03, b'a', 0, 0xbb, 0x03]) && r.bytes("a\u{e9}b".as_bytes()) && r.bytes(&[0x80, 1]));
    r.commit();
    let mut r = writer.reserve(RecordType::Sample, 256).expect("room");
    assert!((1..=11).all(|byte| r.byte(byte)));
    r.mark(0x1234);
    r.commit();
    let mut r = writer.reserve(RecordType::Lost, 64).expect("room");
    r.fixed(LostRecord { header, samples: 31, weight: 32 });
    r.commit();
    let head = block.head.load(Ordering::Acquire) as usize;
    ring.iter().flat_map(|w| w.to_ne_bytes()).take(head).collect()
}

#[test]
fn what_a_target_writes_comes_back() {
    let read: Vec<Record> = records(&written()).map(|r| r.expect("whole")).collect();
    let expected = [
        Record::Thread("worker".into()),
        Record::Object {
            time: 1,
            bias: 2,
            start: 3,
            end: 4,
            build_id: vec![7, 8, 9],
            path: b"/lib/x.so".to_vec(),
            facts_key: 5,
        },
        Record::Name {
            id: 11,
            plugin: 1,
            code: 12,
            fingerprint: 13,
            first_line: 14,
            table_kind: 1,
            name: "\u{33b}a\u{3bb}".into(),
            file: "a\u{e9}b".into(),
            table: vec![0x80, 1],
        },
        Record::Sample { mark: 0x1234, coded: vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0, 0] },
        Record::Lost { samples: 31, weight: 32 },
    ];
    assert_eq!(read, expected);
}

#[test]
fn texts_of_all_widths() {
    assert_eq!(text(&[b'a', 0xe9], 1, 0), "a\u{e9}");
    assert_eq!(text("a\u{e9}".as_bytes(), 1, 1), "a\u{e9}");
    assert_eq!(text(&[0xff, 0xfe], 1, 1), "\u{fffd}\u{fffd}");
    assert_eq!(text(&[0x00, 0xd8], 2, 0), "\u{fffd}", "lone surrogate");
    assert_eq!(text(&[0x00, 0xf6, 0x01, 0x00, 0xff, 0xff, 0xff, 0xff], 4, 0), "\u{1f600}\u{fffd}");
    assert_eq!(text(&[1], 2, 0), "", "half a character");
}

#[test]
fn a_wrong_size_ends_the_reading_and_a_wrong_type_does_not() {
    let mut bytes = written();
    bytes[4..6].copy_from_slice(&99u16.to_ne_bytes());
    assert_eq!(records(&bytes).next(), Some(Err(Damage::Type(99))));
    assert_eq!(records(&bytes).filter(|r| r.is_ok()).count(), 4);
    for size in [0u32, 4, 12, 1 << 31] {
        bytes[..4].copy_from_slice(&size.to_ne_bytes());
        assert_eq!(records(&bytes).collect::<Vec<_>>(), [Err(Damage::Size(size))]);
    }
}

#[test]
fn any_bytes_are_read_to_an_end() {
    let good = written();
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    for round in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + round % 8 {
            let at = random.number() as usize % bytes.len();
            bytes[at] = random.number() as u8;
        }
        bytes.truncate(random.number() as usize % (bytes.len() + 1));
        // Every record takes at least eight bytes: more results than that would be a loop.
        assert!(records(&bytes).count() <= bytes.len() / 8 + 1);
    }
}
