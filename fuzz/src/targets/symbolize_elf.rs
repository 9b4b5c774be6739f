//! ELF files as reports read them: eight addresses of four bytes, then the file.

use crate::input::Input;
use uunwind_report::symbolize::{functions, go, Elf};

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
    match Elf::parse(file) {
        Ok(elf) => {
            let _ = elf.same_section(addresses[0], addresses[1]);
            true
        }
        Err(_) => false,
    }
}
