//! Symbols that a file has in its section `.gnu_debugdata`, an ELF file compressed by xz
//! ([MiniDebugInfo](https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html)): those of functions that
//! its dynamic table lacks, as Fedora's stripped programs have them. Any bytes may be passed.

use crate::table::{self, Named};
use lzma_rust2::XzReader;
use object::{Object, ObjectSection, ReadRef};
use std::io::Read;
use std::path::Path;
use uunwind_elf::blocks::Blocks;

/// At most this number of bytes is read, and made of them. Those of a program with 100,000 functions are about 1 and 8
/// MiB.
const COMPRESSED: u64 = 32 << 20;
const DECOMPRESSED: u64 = 64 << 20;
/// At most this number of KiB is used to decompress them: xz's greatest level takes 65 MiB.
const MEMORY: u32 = 128 << 10;

/// For each file address, the symbol that names it. `None`: the file has no such section. The error says, for people,
/// why it cannot be used.
pub fn names(path: &Path, addresses: &[u64]) -> Result<Option<Vec<Named>>, String> {
    let Ok(file) = uunwind_elf::files::open(path) else { return Ok(None) };
    in_image(&Blocks::new(file), addresses)
}

/// As [`names`], in an ELF image.
pub fn in_image<'data, R: ReadRef<'data>>(image: R, addresses: &[u64]) -> Result<Option<Vec<Named>>, String> {
    let Ok(elf) = object::File::parse(image) else { return Ok(None) };
    let Some(section) = elf.section_by_name(".gnu_debugdata") else { return Ok(None) };
    let unusable = |why: &str| format!("its compressed symbols (.gnu_debugdata) cannot be used: {why}");
    if section.size() > COMPRESSED {
        return Err(unusable(&format!("they have {} bytes, and at most {COMPRESSED} are read", section.size())));
    }
    let data = section.data().map_err(|error| unusable(&error.to_string()))?;
    let image = decompressed(data).map_err(|why| unusable(&why))?;
    table::in_image(&*image, addresses).map(Some).map_err(|error| unusable(&error))
}

fn decompressed(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut image = Vec::new();
    let mut reader = XzReader::new_mem_limit(data, false, MEMORY).take(DECOMPRESSED + 1);
    reader.read_to_end(&mut image).map_err(|error| error.to_string())?;
    if image.len() as u64 > DECOMPRESSED {
        return Err(format!("they have more than {DECOMPRESSED} bytes once they are decompressed"));
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{run, SOURCE};
    use std::path::PathBuf;

    /// A stripped program whose section has what this command writes, and the file address of its hidden function, by
    /// nm.
    fn program(test: &str, section: &str) -> (PathBuf, u64) {
        let folder = std::env::temp_dir().join(format!("uu-mini-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("a.c"), SOURCE).expect("a source");
        run(
            &folder,
            &format!(
                "gcc -O1 -Wl,--build-id=sha1 -o a a.c; nm a | grep ' hidden$' >nm; objcopy --only-keep-debug a all; \
                 objcopy -S --keep-symbol=hidden all mini; {section}; strip a; \
                 objcopy --add-section .gnu_debugdata=mini.xz a"
            ),
        );
        let nm = std::fs::read_to_string(folder.join("nm")).expect("nm");
        let address = u64::from_str_radix(nm.split(' ').next().expect("an address"), 16).expect("hexadecimal");
        (folder, address)
    }

    fn answer(folder: &Path, address: u64) -> crate::Answer {
        let files = [folder.join("a")];
        let build_id = crate::Elf::read(&files[0]).expect("ELF").build_id;
        let mapped = crate::Mapped { build_id: &build_id, headers_key: 0, files: &files, folders: &[] };
        crate::look_up(&mapped, &[address], &[]).expect("an answer")
    }

    #[test]
    fn a_stripped_function_has_its_name() {
        for level in ["-0", "-6", "-9e", "--check=none", "--x86 --lzma2", "--block-size=512 -T1"] {
            let (folder, address) = program("named", &format!("xz {level} -c mini >mini.xz"));
            let answer = answer(&folder, address);
            let symbol = answer.symbols.first().expect("a symbol");
            assert_eq!((&*symbol.name, symbol.start, answer.remark), ("hidden", address, None), "{level}");
            std::fs::remove_dir_all(&folder).expect("removed");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_and_costs_nothing_else() {
        for (test, section, why) in [
            ("none", "echo nothing >mini.xz", "cannot be used"),
            ("cut", "xz -c mini | head -c 200 >mini.xz", "cannot be used"),
            (
                "damaged",
                "xz -c mini >mini.xz; printf xxxx | dd of=mini.xz bs=1 seek=100 conv=notrunc status=none",
                "used",
            ),
            ("large", "head -c 70M /dev/zero | xz -0 -c >mini.xz", "more than 67108864 bytes"),
            ("hungry", "xz --lzma2=dict=512MiB -c mini >mini.xz", "memory"),
            ("other", "xz -c a.c >mini.xz", "cannot be used"),
        ] {
            let (folder, address) = program(test, section);
            let answer = answer(&folder, address);
            let said = answer.remark.expect("a remark");
            assert!(said.contains(".gnu_debugdata") && said.contains(why), "{test}: {said}");
            assert_eq!(answer.symbols.first().map(|symbol| &*symbol.name), Some(""), "{test}");
            std::fs::remove_dir_all(&folder).expect("removed");
        }
    }
}
