use super::*;

/// A stack: where it begins, its words and their addresses, where it ends, what was cut.
type Stack = (u64, Vec<(u64, u64)>, u64, Option<u64>);

/// What a copy holds, as its reader sees it.
#[derive(Default, PartialEq, Eq, Debug)]
struct Stacks(Vec<Stack>);

impl Sink for Stacks {
    fn stack(&mut self, start: u64) {
        self.0.push((start, Vec::new(), 0, None));
    }
    fn word(&mut self, address: u64, value: u64) {
        self.0.last_mut().expect("a stack").1.push((address, value));
    }
    fn end(&mut self, end: u64, cut: Option<u64>) {
        let last = self.0.last_mut().expect("a stack");
        (last.2, last.3) = (end, cut);
    }
}

/// Random numbers, the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

const SP: u64 = 0x7ffd_1234_5678;

/// A stack like those of programs: code of a few objects, frames, data.
fn made(random: &mut Random, words: u64) -> (Vec<u8>, Head, Stacks) {
    let objects: Vec<u64> = (0..6).map(|_| 0x7f00_0000_0000 + random.next(1 << 38)).collect();
    // As of a function that calls itself.
    let mut again = (0..50).map(|_| objects[random.next(6) as usize] + random.next(1 << 24)).collect::<Vec<_>>();
    let mut head = Head { flags: random.next(2) as u8, pc: objects[0] + random.next(1 << 20), registers: [0; 16] };
    for register in &mut head.registers {
        *register = match random.next(5) {
            0 => 0,
            1 => SP + random.next(100) * 8,
            2 => u64::MAX - random.next(1 << 40),
            _ => random.next(1 << 20) << random.next(44),
        };
    }
    head.registers[7] = SP;
    let (mut bytes, mut recent) = (vec![0; 1 << 20], Recent::new(0));
    let mut encoder = Encoder::begin(&mut bytes, &mut recent, head.flags, head.pc, &head.registers);
    let mut stacks = Stacks::default();
    for start in [SP - 8, SP + (1 << 30)].into_iter().take(1 + random.next(2) as usize) {
        encoder.stack(start);
        stacks.stack(start);
        for at in (start..).step_by(8).take(words as usize) {
            match random.next(14) {
                0 => {
                    let value = at.wrapping_add_signed(random.next(1 << 12) as i64 * 8 - (1 << 14));
                    encoder.frame(at, value);
                    stacks.word(at, value);
                }
                1 => {
                    let value = objects[random.next(6) as usize] + random.next(16) * random.next(1 << 16);
                    encoder.code(value);
                    stacks.word(at, value);
                }
                2 | 3 => {
                    again.rotate_left(1);
                    encoder.code(again[0]);
                    stacks.word(at, again[0]);
                }
                _ => encoder.leave_out(),
            }
        }
        let cut = [None, Some(0), Some(random.next(1 << 40))][random.next(3) as usize];
        encoder.end(cut);
        stacks.end(start + words * 8, cut);
    }
    let len = encoder.finish();
    bytes.truncate(len);
    (bytes, head, stacks)
}

#[test]
fn what_was_coded_comes_back() {
    let mut random = Random(1);
    for round in 0..200 {
        let (bytes, head, stacks) = made(&mut random, round * 7);
        let mut found = Stacks::default();
        assert_eq!(decode(&bytes, &mut found), Ok(head));
        assert_eq!(found, stacks);
        for cut in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
            assert!(decode(&bytes[..cut], &mut Stacks::default()).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn any_bytes_are_read_without_harm() {
    let mut random = Random(2);
    for _ in 0..2000 {
        let (mut bytes, ..) = made(&mut random, 100);
        for _ in 0..1 + random.next(4) {
            let at = random.next(bytes.len() as u64) as usize;
            bytes[at] = random.next(256) as u8;
        }
        let mut found = Stacks::default();
        let _ = decode(&bytes, &mut found);
        assert!(found.0.iter().map(|stack| stack.1.len()).sum::<usize>() <= bytes.len());
    }
}

#[test]
fn a_buffer_that_is_full_ends_a_stack_and_says_so() {
    let (mut bytes, mut recent) = (vec![0; 300], Recent::new(0));
    let mut registers = [u64::MAX; 16];
    registers[7] = SP;
    let mut encoder = Encoder::begin(&mut bytes, &mut recent, 0, 1, &registers);
    encoder.stack(SP);
    let mut words = 0;
    while encoder.has_room() {
        encoder.code(words << 40 | 0x1234_5678);
        words += 1;
    }
    encoder.end(Some(7));
    let len = encoder.finish();
    assert!(words > 5 && len <= 300);
    let mut found = Stacks::default();
    decode(&bytes[..len], &mut found).expect("whole");
    assert_eq!((found.0[0].1.len() as u64, found.0[0].2, found.0[0].3), (words, SP + words * 8, Some(7)));
}

/// The bytes of a stack of these addresses, registers and all.
fn length(addresses: impl Iterator<Item = u64>) -> usize {
    let (mut bytes, mut recent) = (vec![0; 1 << 16], Recent::new(0));
    let mut encoder = Encoder::begin(&mut bytes, &mut recent, 0, 0x7f00_0000_0000, &[0; 16]);
    encoder.stack(0);
    addresses.for_each(|address| encoder.code(address));
    encoder.end(None);
    encoder.finish()
}

#[test]
fn an_order_that_comes_again_takes_a_byte_a_word_and_another_one_two() {
    let mut random = Random(3);
    // Few enough that hardly any share a place.
    let first: Vec<u64> = (0..100).map(|_| 0x7f00_0000_0000 + random.next(1 << 26)).collect();
    let once = length(first.iter().copied());
    let again = length(first.iter().chain(&first).copied()) - once;
    let backwards = length(first.iter().chain(first.iter().rev()).copied()) - once;
    assert!((100..=110).contains(&again), "{again} bytes");
    assert!((195..=225).contains(&backwards), "{backwards} bytes");
}
