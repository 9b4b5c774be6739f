//! What the rest of uu must know of Java: the plugin's [`Half`].

use uunwind_elf::Image;
use uunwind_hotspot::lines;
use uunwind_language::{Finding, Half, Language, LineTable};

/// The HotSpot plugin's half outside of signal handlers.
pub struct HotSpot;

/// Native functions that only pass a call on from one Java method to another, in HotSpot itself.
const GLUE: &[&str] = &[
    "JavaCalls::call*",
    "os::os_exception_wrapper*",
    "jni_invoke_static*",
    "jni_invoke_nonstatic*",
    "jni_Call*",
    "JVM_InvokeMethod",
    "JVM_NewInstanceFromConstructor",
    "Reflection::invoke*",
    "JVM_DoPrivileged",
];

impl Half for HotSpot {
    fn language(&self) -> Language {
        let name = uunwind_hotspot::NAME.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        Language {
            plugin: name,
            label: "java".to_owned(),
            title: "Java".to_owned(),
            glue: GLUE.iter().map(|text| (*text).to_owned()).collect(),
            ..Language::default()
        }
    }

    fn analyse(&self, image: &Image) -> Finding {
        crate::analyse(image)
    }

    /// The table is the method's own; the position counts its bytecode from 1 on.
    fn line(&self, table: &LineTable<'_>, position: u64) -> Option<u32> {
        let at = u32::try_from(position.checked_sub(1)?).ok()?;
        lines::at(table.bytes, table.kind, at)
    }
}
