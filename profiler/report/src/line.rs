//! A frame of a stack as people see it.

use uunwind_language::Place;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Machine code in an object.
    Native,
    /// Machine code of a function that was inlined into the caller's frame.
    Inlined,
    /// Machine code made at run time, named by its JIT.
    Jit,
    /// A frame of an interpreted language.
    Semantic,
    /// A frame of an interpreted language that is not on the stack: it awaits those before it.
    Awaiting,
    /// A function of the kernel.
    Kernel,
    /// Not code: what the thread waits in, a system call mostly.
    Waiting,
    /// Not code: a remark, in square brackets.
    Marker,
}

impl Kind {
    /// Is it a frame of an interpreted language?
    pub fn is_semantic(self) -> bool {
        matches!(self, Kind::Semantic | Kind::Awaiting)
    }

    /// Its name in files for programs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Inlined => "inlined",
            Kind::Jit => "jit",
            Kind::Semantic => "interpreted",
            Kind::Awaiting => "awaiting",
            Kind::Kernel => "kernel",
            Kind::Waiting => "waiting",
            Kind::Marker => "remark",
        }
    }
}

/// A frame as people see it. Frames with equal content share one line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// What kind of frame it is.
    pub kind: Kind,
    /// Function, qualified and demangled. Without a name: `object+0xoffset` (of the function if available, else of the
    /// frame), or `[unknown code]` where no object covers it.
    pub function: String,
    /// Source file; empty if not available.
    pub file: String,
    /// Executing line; 0 if not available.
    pub line: u32,
    /// Where in the source the executing code stands, if columns are to be shown and known.
    pub place: Option<Place>,
    /// First line of the function; 0 if not available.
    pub first_line: u32,
    /// Plugin of a semantic frame; empty for other kinds.
    pub plugin: String,
    /// Canonical object (index in the recording) of native code.
    pub object: Option<u32>,
    /// File address of native code; its process address if there is no object.
    pub address: u64,
    /// Whether the function's name was found.
    pub named: bool,
    /// Whether it only serves an interpreter or a loader, and is hidden by default. Set by
    /// [`Merger::marking_glue`](crate::stacks::Merger::marking_glue) only.
    pub glue: bool,
}

impl Line {
    /// A line that stands for no code: a text in brackets, such as why a stack is truncated.
    pub fn marker(text: String) -> Line {
        Line {
            kind: Kind::Marker,
            function: text,
            file: String::new(),
            line: 0,
            place: None,
            first_line: 0,
            plugin: String::new(),
            object: None,
            address: 0,
            named: true,
            glue: false,
        }
    }

    /// The frame's text in a folded stack: semantic frames with file and executing line, others by name.
    pub fn folded(&self) -> String {
        match self.kind {
            Kind::Semantic | Kind::Awaiting => format!("{} ({}:{})", self.function, self.file, self.position()),
            _ => self.function.clone(),
        }
    }

    /// The executing line, with its columns if they are to be shown.
    pub fn position(&self) -> String {
        self.columns().map_or_else(|| self.line.to_string(), with_columns)
    }

    /// Columns of the executing line, if they are to be shown and known.
    pub fn columns(&self) -> Option<Place> {
        self.place.filter(|place| place.line == self.line)
    }

    /// The frame's text where stacks are merged by function: semantic frames with their file.
    pub fn merged(&self) -> String {
        match self.kind {
            Kind::Semantic | Kind::Awaiting if !self.file.is_empty() => format!("{} ({})", self.function, self.file),
            _ => self.function.clone(),
        }
    }
}

/// `LINE:COLUMN-COLUMN`, or `LINE:COLUMN-LINE:COLUMN` where the code ends in another line. Columns count from 1, as
/// compilers and editors do, and the end is that of the last byte.
pub fn with_columns(place: Place) -> String {
    let Place { line, end_line, column, end_column } = place;
    let first = u64::from(column) + 1;
    match end_line == line {
        true => format!("{line}:{first}-{end_column}"),
        false => format!("{line}:{first}-{end_line}:{end_column}"),
    }
}
