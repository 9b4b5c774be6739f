//! The safe face of the plugin contract, on a host of these tests.

use core::cell::Cell;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::guest::{Guest, Plain};
use uunwind_core::plugin::{CRule, Caller, Plugin, View, READING_HOST, SCRATCH_BYTES, STEP_NATIVE};
use uunwind_core::regs::COUNT;
use uunwind_core::{rule_of, visit};

uunwind_core::plain! {
    #[derive(PartialEq, Debug)]
    struct Pair {
        low: u32,
        high: u32,
    }
}

/// Aligned as the host's scratch memory is.
#[repr(align(16))]
struct Scratch([u8; SCRATCH_BYTES]);

fn view(reader: &mut Reader<'_>, scratch: &mut Scratch, caller: &mut Caller) -> View {
    let mut view = View::new();
    (view.pc, view.sp, view.cfa, view.known) = (0x1000, 0x7000, 0x7040, 1 << 3);
    view.registers[3] = 33;
    (view.host, view.walk) = (&READING_HOST, core::ptr::from_mut(reader).cast());
    (view.scratch, view.caller) = (scratch.0.as_mut_ptr(), caller);
    view
}

fn with(test: impl FnOnce(&mut View)) {
    let bytes: Vec<u8> = (0..32).collect();
    let regions = [Region { address: 0x7000, bytes: &bytes }];
    let mut reader = Reader::recorded(&regions);
    let mut scratch = Scratch([0; SCRATCH_BYTES]);
    let mut caller = Caller { pc: 1, registers: [0; COUNT], known: 0, exact: 0 };
    test(&mut view(&mut reader, &mut scratch, &mut caller));
}

fn guest(view: &View) -> Guest<'_> {
    // SAFETY: made by `view` above, and wrapped once.
    unsafe { Guest::new(view) }.expect("a host of this version")
}

#[test]
fn what_is_lent_is_lent_once() {
    with(|view| {
        let guest = guest(view);
        let pair: &mut Pair = guest.scratch(8).expect("room");
        pair.low = 7;
        assert!(guest.scratch::<Pair>(8).is_none(), "two references to the same bytes");
        assert!(guest.caller().is_some() && guest.caller().is_none());
        assert_eq!(pair.low, 7);
    });
    with(|view| {
        let guest = guest(view);
        assert!(guest.scratch::<Pair>(SCRATCH_BYTES - 7).is_none(), "beyond the end");
        assert!(guest.scratch::<Pair>(usize::MAX).is_none(), "beyond all");
        assert!(guest.scratch::<Pair>(2).is_none(), "not aligned");
        assert!(guest.scratch::<Pair>(SCRATCH_BYTES - 8).is_some(), "up to the end");
    });
}

#[test]
fn reads_are_the_hosts() {
    with(|view| {
        let guest = guest(view);
        assert_eq!(guest.read::<Pair>(0x7001), Some(Pair { low: 0x0403_0201, high: 0x0807_0605 }));
        assert_eq!(guest.read::<Pair>(0x7019), None, "its last byte is unreadable");
        assert_eq!((guest.byte(0x701f), guest.byte(0x7020)), (Some(31), None));
        assert_eq!((guest.half(0x7004), guest.half(0x7005)), (Some(0x0706_0504), Some(0x0807_0605)));
        assert_eq!((guest.slot(0x40), guest.slot(0x48)), (guest.word(0x7000), None));
        let mut words = [0; 9];
        assert!(guest.run(0x7000, &mut words[..4]) && words[3] == 0x1f1e_1d1c_1b1a_1918);
        assert!(!guest.run(0x7000, &mut words[..5]) && !guest.run(0x7000, &mut words), "unreadable; too many");
        assert_eq!((guest.facts(), guest.lookup(0x1000).facts()), (&[][..], &[][..]));
        assert!(!guest.is_claimed(0x1000) && !guest.emit(1, 1) && guest.find_name(1, 1) == 0);
    });
}

#[test]
fn facts_are_values_of_enough_bytes() {
    let pair = Pair { low: 1, high: 2 };
    let mut bytes = [0; 9];
    bytes[1..].copy_from_slice(pair.as_bytes());
    assert_eq!(Pair::from_bytes(&bytes[1..]), Some(pair));
    assert!(Pair::from_bytes(&bytes[2..]).is_none() && Pair::view(&bytes[2..]).is_none());
    let views = [Pair::view(&bytes), Pair::view(&bytes[1..])];
    assert!(views.iter().flatten().count() <= 1, "at most one of them is aligned");
}

#[test]
fn a_table_calls_safe_functions_and_reports_what_they_used() {
    fn step(guest: &Guest<'_>) -> u32 {
        assert_eq!((guest.register(3), guest.register(4), guest.register(200)), (Some(33), None, None));
        guest.restored(6);
        guest.restored(200);
        STEP_NATIVE + 0x55
    }
    fn rule(guest: &Guest<'_>) -> Option<CRule> {
        (guest.lookup_pc() == 0xfff).then(|| CRule::simple(7, 8))
    }
    let table = Plugin { step: visit!(step, 9), rule: rule_of!(rule), ..Plugin::new([0; 16]) };
    let (step, rule) = (table.step.expect("a step"), table.rule.expect("a rule"));
    with(|view| {
        let mut out = CRule::simple(0, 0);
        // SAFETY: a view of these tests, null, and a place for a rule.
        unsafe {
            assert_eq!(step(view), 0x55);
            assert_eq!((view.used, view.restored), (1 << 3 | 1 << 4, 1 << 6));
            assert_eq!(step(core::ptr::null_mut()), 9, "no view");
            assert_eq!((rule(view, &mut out), out.offset), (1, 8));
            view.pc += 1;
            assert_eq!(rule(view, &mut out), 0);
            view.size -= 1;
            assert_eq!(step(view), 9, "a view of an older host");
        }
    });
}

#[test]
fn analyse_halves_write_facts_that_fit() {
    use core::ffi::{c_char, c_void, CStr};
    use uunwind_core::plugin::guest::{Object, Unserved};
    use uunwind_core::plugin::ObjectFile;

    unsafe extern "C" fn symbol(_: *mut c_void, name: *const c_char, address: *mut u64, size: *mut u64) -> bool {
        // SAFETY: the names and places of the tests below.
        unsafe {
            (*address, *size) = (0x40, 8);
            CStr::from_ptr(name) == c"known"
        }
    }
    unsafe extern "C" fn read(_: *mut c_void, _: u64, _: *mut u8, _: usize) -> bool {
        false
    }
    unsafe extern "C" fn note(host: *mut c_void, _: *const c_char) {
        // SAFETY: the counter of this test.
        unsafe { &*host.cast::<Cell<u32>>() }.set(1);
    }
    fn find(object: &Object<'_>) -> Result<Option<Pair>, Unserved> {
        if object.symbol(c"unknown").is_some() || object.data() != b"ELF" || object.path() != b"/a" {
            return Ok(None);
        }
        let (address, size) = object.symbol(c"known").ok_or(Unserved)?;
        object.note(c"noted");
        Ok(Some(Pair { low: address as u32, high: size as u32 }))
    }
    let half = Plugin { analyse: uunwind_core::analyse!(find), ..Plugin::new([0; 16]) }.analyse.expect("a half");
    let notes = Cell::new(0);
    let file = ObjectFile {
        size: size_of::<ObjectFile>() as u32,
        reserved: 0,
        path: c"/a".as_ptr(),
        data: b"ELF".as_ptr(),
        len: 3,
        build_id: core::ptr::null(),
        build_id_len: 0,
        host: core::ptr::from_ref(&notes).cast_mut().cast(),
        symbol,
        read,
        note,
    };
    let mut facts = [0xff; 9];
    // SAFETY: an object of this test, and room for as many bytes.
    let sizes = [0, 7, 8].map(|room| unsafe { half(&file, facts.as_mut_ptr().wrapping_add(1), room) });
    assert_eq!((sizes, notes.get()), ([0, 0, 8], 1));
    assert_eq!(facts, [0xff, 0x40, 0, 0, 0, 8, 0, 0, 0]);
}

#[test]
fn constants_of_a_plugin_have_different_sums() {
    use uunwind_core::plugin::{Text, OWN_TEXT};

    // Neighbours in read-only data, as "__le" and "__newindex", may differ by as much in address as in length.
    with(|view| {
        let guest = guest(view);
        let sum = |address: u64, len| guest.sum(&Text { address, len, width: 1, utf8: 1 | OWN_TEXT }).expect("a sum");
        let texts = (0x7fff_ffff_f000..0x7fff_ffff_f040).flat_map(|at| (0..=64).map(move |len| (at, len)));
        let all: std::collections::BTreeSet<_> = texts.map(|(at, len)| sum(at, len)).collect();
        assert_eq!(all.len(), 64 * 65);
    });
}
