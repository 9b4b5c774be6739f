//! ELF files as reports read them: eight addresses of four bytes, then the file.

use crate::input::Input;
use uunwind_symbolize::{debug_info, functions, go, mini_debug, table, Elf};

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let addresses: [u64; 8] = std::array::from_fn(|_| u64::from(input.u32()));
    let file = input.rest();
    let ranges = functions::in_image(file, &addresses);
    for (address, range) in addresses.iter().zip(ranges.iter().flatten()) {
        assert!(range.as_ref().is_none_or(|r| r.contains(address)), "{range:?} does not hold {address:#x}");
    }
    for (address, function) in addresses.iter().zip(go::in_image(file, &addresses).unwrap_or_default()) {
        assert!(function.is_none_or(|(start, name)| start <= *address && !name.is_empty()), "{address:#x}");
    }
    let symbols = table::in_image(file, &addresses).unwrap_or_default();
    let compressed = mini_debug::in_image(file, &addresses).ok().flatten().unwrap_or_default();
    for (address, named) in addresses.iter().zip(symbols).chain(addresses.iter().zip(compressed)) {
        assert!(named.is_none_or(|(start, name)| start <= *address && !name.is_empty()), "{address:#x}");
    }
    // The image is its own package, split unit and supplement.
    if let Ok(found) = debug_info::in_image(file, &addresses) {
        assert!(found.symbols.len() == addresses.len(), "{} symbols", found.symbols.len());
    }
    Elf::parse(file).is_ok()
}
