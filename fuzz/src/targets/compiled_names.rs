//! Functions that were compiled by Cython, mypyc or Nuitka: a byte that says which partners of a name exist, the
//! length of an object's name, that name, then a text, read both as the name of a symbol and as generated source.

use crate::alloc;
use crate::input::Input;
use uunwind_built_in::python::Python;
use uunwind_language::Half;

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (partners, len) = (input.u8(), usize::from(input.u8()));
    let object = String::from_utf8_lossy(input.bytes(len)).into_owned();
    let text = String::from_utf8_lossy(input.rest()).into_owned();

    // Which of the names that are asked for exist depends on their length only.
    let has = |name: &str| partners >> (name.len() % 8) & 1 != 0;
    let name = Python.compiled(&object, &text, &has);
    if let Some(compiled) = &name {
        assert!(!compiled.name.is_empty() && compiled.rank < 3, "{compiled:?} of {text:?}");
        assert!(compiled.name.len() <= 2 * (object.len() + text.len()) + 16, "{compiled:?} of {text:?}");
    }

    let origins = Python.origins(&text);
    assert!(origins.is_sorted_by(|a, b| a.generated.1 < b.generated.0), "{origins:?}");
    assert!(origins.iter().all(|one| 0 < one.generated.0 && one.generated.0 <= one.generated.1), "{origins:?}");
    assert!(origins.len() <= text.lines().count(), "more origins than lines");
    assert!(alloc::held() <= 64 * data.len() + alloc::FREE, "{} bytes are held", alloc::held());
    name.is_some() || !origins.is_empty()
}
