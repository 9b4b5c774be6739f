//! The numbers that V8 exports for debuggers: 32 bits each, named `v8dbg_*`, made by
//! <https://github.com/v8/v8/blob/11.3.244/tools/gen-postmortem-metadata.py>; and its version.

use uunwind_elf::Image;

/// A variable of 32 bits.
fn number(image: &Image, name: &str) -> Option<i32> {
    let symbol = image.symbol(name)?;
    let mut bytes = [0; 4];
    image.read_address(symbol.address, &mut bytes).then(|| i32::from_le_bytes(bytes))
}

/// The number `v8dbg_NAME`.
pub fn constant(image: &Image, name: &str) -> Option<i32> {
    number(image, &format!("v8dbg_{name}"))
}

/// An offset `v8dbg_class_NAME`: not negative.
pub fn offset(image: &Image, name: &str) -> Option<u32> {
    constant(image, &format!("class_{name}")).and_then(|number| u32::try_from(number).ok())
}

/// An instance type `v8dbg_type_NAME`.
pub fn instance_type(image: &Image, name: &str) -> Option<u16> {
    constant(image, &format!("type_{name}")).and_then(|number| u16::try_from(number).ok())
}

/// V8's version. `None`: the file has no V8.
pub fn version(image: &Image) -> Option<[u16; 4]> {
    let part =
        |name: &str| number(image, &format!("_ZN2v88internal7Version{name}E")).and_then(|n| u16::try_from(n).ok());
    Some([part("6major_")?, part("6minor_")?, part("6build_")?, part("6patch_")?])
}
