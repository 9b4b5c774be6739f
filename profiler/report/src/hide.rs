//! Decides which frames a reader need not see: the interpreter's own machinery between two of its semantic frames, the
//! frames of a language's own loader around code that it loads and runs, those of bindings between a language and the
//! native code that it calls, and the frames of uu's own objects. C code that does the program's work is kept. What is
//! machinery, a loader and a binding, the recording says for each language.

use std::collections::BTreeSet;
use std::path::Path;
use uunwind_language::{Binding, Role};

/// What to do with an interpreter's native frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NativeFrames {
    /// Hide the frames that only serve the interpreter; pictures charge the rest of its own code to the line that
    /// called it.
    #[default]
    Hide,
    /// Hide the frames that only serve the interpreter, and show those in which it spent its time.
    Leaf,
    /// Show all of them.
    Show,
}

/// The properties of a frame that the rules depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// It is machinery of an interpreter, by its name.
    pub glue: bool,
    /// The plugin marked it: it is the interpreter's function that runs semantic frames.
    pub marked: bool,
    /// Index of the native frame's object.
    pub object: Option<u32>,
    /// What it does, by the file and name of its function: frames of a language's own loader.
    pub role: Role,
    /// What it does for a binding, by its object and name.
    pub binding: Binding,
    /// It lies in one of uu's own objects.
    pub own: bool,
    /// It lies in the preloaded object.
    pub preload: bool,
}

/// Which semantic frames a stack may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// It lacks none.
    Nothing,
    /// Those of interpreters that had not been analysed.
    Unanalysed,
    /// Those of any interpreter.
    Semantic,
}

/// For each frame of a stack, given leaf first: is it shown?
pub fn shown(frames: &[Facts], native_frames: NativeFrames, missing: Missing) -> Vec<bool> {
    let leaf_own = frames.iter().take_while(|f| f.own).count();
    let root_own = frames.len() - frames.iter().rev().take_while(|f| f.own).count();
    // Where semantic frames are missing, the machinery is all there is to see. An interpreter with a marked frame in
    // this stack had been analysed, so its semantic frames are there.
    // Collected once: a stack may have thousands of frames.
    let analysed: BTreeSet<u32> = frames.iter().filter(|f| f.marked).filter_map(|f| f.object).collect();
    let may_hide = |f: &Facts| match (native_frames, missing) {
        (NativeFrames::Show, _) | (_, Missing::Semantic) => false,
        (_, Missing::Nothing) => true,
        (_, Missing::Unanalysed) => f.marked || f.object.is_some_and(|object| analysed.contains(&object)),
    };
    let ours = |(i, f): (usize, &Facts)| f.preload || i < leaf_own || i >= root_own;
    let mut shown: Vec<bool> = frames.iter().enumerate().map(|e| !(ours(e) || e.1.glue && may_hide(e.1))).collect();
    if native_frames != NativeFrames::Show {
        hide_loaders(frames, &mut shown);
        // A marked frame: semantic frames of an interpreter are there.
        if missing != Missing::Semantic && frames.iter().any(|f| f.marked) {
            hide_bindings(frames, &mut shown);
        }
    }
    shown
}

/// Hides each run of a binding's frames that passes a call on: its innermost frame called native code that is shown, or
/// a function of the language. A run in which time was spent otherwise is kept: the conversion of arguments is work.
fn hide_bindings(frames: &[Facts], shown: &mut [bool]) {
    let in_binding = |f: &Facts| f.binding.converts || f.binding.calls;
    let mut inner_is_shown = false;
    // The frames between this one and the next shown frame inward are machinery that runs the language's functions.
    let mut runs_language = false;
    let mut start = 0;
    for run in frames.chunk_by(|a, b| in_binding(a) == in_binding(b)) {
        let Some(shown) = shown.get_mut(start..start + run.len()) else { return };
        start += run.len();
        let calls = inner_is_shown && run.first().is_some_and(|f| f.binding.calls);
        if run.iter().any(|f| f.binding.converts) && (calls || runs_language) {
            shown.fill(false);
        }
        for (frame, shown) in run.iter().zip(shown) {
            inner_is_shown |= *shown;
            runs_language = !*shown && (runs_language || frame.marked && inner_is_shown);
        }
    }
}

/// Hides each run of a loader's frames whose innermost frame runs the code that was loaded. A run without such a frame
/// is kept: time was spent in finding and loading.
fn hide_loaders(frames: &[Facts], shown: &mut [bool]) {
    let mut inner_is_shown = false;
    let mut runs_code = false;
    for (frame, shown) in frames.iter().zip(shown) {
        match frame.role {
            Role::Work if *shown => runs_code = false,
            Role::Work => continue,
            // The innermost frame of its run, unless it is hidden already.
            Role::Starts => runs_code = inner_is_shown,
            Role::Loads => {}
        }
        *shown = *shown && !(runs_code && frame.role != Role::Work);
        inner_is_shown |= *shown;
    }
}

/// Whether an object belongs to uu.
pub fn is_own(path: &[u8]) -> bool {
    let text = String::from_utf8_lossy(path);
    let path = Path::new(text.as_ref());
    let Some(file) = path.file_name().and_then(|f| f.to_str()) else { return false };
    let in_plugins = path.parent().is_some_and(|dir| dir.ends_with("uu/plugins"));
    is_preload(text.as_bytes()) || file.starts_with("libuunwind.so") || in_plugins
}

/// Whether an object is the preloaded one, whose frames are always wrappers.
pub fn is_preload(path: &[u8]) -> bool {
    [&b"/libuunwind-preload.so"[..], b"/libuunwind-alloc.so", b"/libuunwind-lock.so"]
        .iter()
        .any(|name| path.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: Facts =
        Facts { glue: false, marked: false, object: None, role: Role::Work, binding: NONE, own: false, preload: false };
    const NONE: Binding = Binding { converts: false, calls: false };
    const CONVERTS: Facts = Facts { binding: Binding { converts: true, ..NONE }, ..MODULE };
    const CALLS: Facts = Facts { binding: Binding { calls: true, ..NONE }, ..MODULE };
    const EVAL: Facts = Facts { marked: true, ..GLUE };
    const GLUE: Facts = Facts { glue: true, ..MODULE };
    const FINDS: Facts = Facts { role: Role::Loads, ..MODULE };
    const RUNS: Facts = Facts { role: Role::Starts, ..MODULE };

    fn rule(frames: &[Facts]) -> Vec<bool> {
        shown(frames, NativeFrames::Hide, Missing::Nothing)
    }

    #[test]
    fn an_import_is_one_step_from_module_to_module() {
        // Leaf first: a module that was imported by another, through glue.
        let stack = [MODULE, GLUE, RUNS, FINDS, GLUE, FINDS, GLUE, MODULE];
        assert_eq!(rule(&stack), [true, false, false, false, false, false, false, true]);
        assert!(shown(&stack, NativeFrames::Show, Missing::Nothing).iter().all(|s| *s));
    }

    #[test]
    fn time_spent_in_finding_a_module_is_shown() {
        assert_eq!(rule(&[FINDS, FINDS, GLUE, MODULE]), [true, true, false, true]);
        // The outer import ran a module that imports another one.
        let stack = [FINDS, GLUE, MODULE, RUNS, FINDS, MODULE];
        assert_eq!(rule(&stack), [true, false, true, false, false, true]);
        // The leaf is always shown.
        assert_eq!(rule(&[RUNS, FINDS, MODULE]), [true, true, true]);
        assert_eq!(rule(&[GLUE, RUNS, FINDS, MODULE]), [false, true, true, true]);
    }

    #[test]
    fn glue_of_an_interpreter_that_was_analysed_is_hidden() {
        let glue = |object| Facts { object: Some(object), ..GLUE };
        let stack = [glue(2), Facts { marked: true, ..glue(1) }, glue(1), glue(2), MODULE];
        assert_eq!(shown(&stack, NativeFrames::Hide, Missing::Unanalysed), [true, false, false, true, true]);
        assert!(shown(&stack, NativeFrames::Hide, Missing::Semantic).iter().all(|s| *s));
    }

    #[test]
    fn glue_of_an_unknown_object_is_shown_beside_a_marked_one() {
        // Neither frame has an object: they need not belong to the same interpreter.
        let stack = [GLUE, Facts { marked: true, ..GLUE }, MODULE];
        assert_eq!(shown(&stack, NativeFrames::Hide, Missing::Unanalysed), [true, false, true]);
    }

    #[test]
    fn a_call_through_a_binding_is_one_step() {
        // A native function that the language called.
        let stack = [MODULE, CALLS, CALLS, CONVERTS, GLUE, MODULE, EVAL];
        assert_eq!(rule(&stack), [true, false, false, false, false, true, false]);
        // A function of the language that native code called, through a binding.
        let stack = [MODULE, EVAL, GLUE, CONVERTS, CALLS, MODULE];
        assert_eq!(rule(&stack), [true, false, false, false, false, true]);
        assert!(shown(&stack, NativeFrames::Show, Missing::Nothing).iter().all(|s| *s));
        assert!(shown(&stack, NativeFrames::Hide, Missing::Semantic).iter().all(|s| *s));
        // No function of the language is in the stack.
        assert_eq!(rule(&[MODULE, CALLS, CONVERTS, MODULE]), [true; 4]);
    }

    #[test]
    fn time_spent_in_a_binding_is_shown() {
        // In itself, in the interpreter for it, and in what only the call's machinery is inside of.
        assert_eq!(rule(&[CALLS, CONVERTS, MODULE, EVAL]), [true, true, true, false]);
        assert_eq!(rule(&[CONVERTS, MODULE, EVAL]), [true, true, false]);
        assert_eq!(rule(&[MODULE, CONVERTS, CALLS, CONVERTS, MODULE, EVAL]), [true, true, true, true, true, false]);
        assert_eq!(rule(&[GLUE, CONVERTS, MODULE, EVAL]), [false, true, true, false]);
        assert_eq!(rule(&[EVAL, CONVERTS, CALLS, MODULE]), [false, true, true, true]);
        // A call that no binding of a language makes.
        assert_eq!(rule(&[MODULE, CALLS, MODULE, EVAL]), [true, true, true, false]);
    }

    #[test]
    fn own_objects() {
        assert!(is_own(b"/opt/lib/uu/libuunwind-preload.so") && is_preload(b"/opt/lib/uu/libuunwind-preload.so"));
        assert!(is_own(b"/opt/lib/libuunwind.so.0") && is_own(b"/opt/lib/uu/plugins/libuunwind-language.so"));
        assert!(!is_own(b"/usr/lib/libuuid.so.1") && !is_own(b"") && !is_own(b"/usr/lib/libuud.so"));
    }
}
