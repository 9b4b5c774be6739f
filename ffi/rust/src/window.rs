//! Code of a JIT, registered as long as a value lives.

use crate::held::Held;
use crate::stepper::Stepper;
use crate::unwinder::{Callbacks, Unwinder};
use crate::{library, sys, Error, Failed, Ticket};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How the frames of a window's code are stepped (`enum uu_window_kind` of `uu.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unwind {
    /// Every function keeps rbp as frame pointer, prologues excepted.
    FramePointer,
    /// There is no unwind data: a walk stops here, with a reason.
    Opaque,
    /// A list of CIEs and FDEs, as in `.eh_frame`, made for the place where the code lies.
    EhFrame(Box<[u8]>),
    /// An SFrame section, made for the place where the code and the section lie.
    SFrame(Box<[u8]>),
    /// There is no unwind data, and the functions keep to the platform's calling convention: a recorder, or who looks
    /// from outside, makes rules from their machine code. Without these the frame pointer is followed, and the caller
    /// marked.
    Code,
}

/// Makes a [`Window`].
#[derive(Debug)]
pub struct WindowBuilder<C> {
    code: Held<C>,
    text: Text,
    by: By,
    functions: Vec<(u32, u32, u32, String)>,
}

/// Where code lies: process address and bytes. The code is asked once, since it might answer otherwise the next time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) start: u64,
    pub(crate) len: usize,
}

/// How a window is stepped, and what walks read for that.
#[derive(Debug)]
enum By {
    Data(u32, Option<Held<[u8]>>),
    Callbacks(Callbacks),
}

/// In what order functions lie in the table, and are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// Code that walks can step, and whose functions have names, until the value is dropped.
///
/// It owns the code `C`, such as memory that was mapped, and what describes it. When it is dropped, the window is
/// unregistered, and the library waits for walks that still read it. Where one does not end within a second, the code
/// and its descriptions are leaked rather than freed while they are read.
///
/// The code is owned, or borrowed for ever: a window that is forgotten ([`std::mem::forget`]) stays registered.
///
/// ```compile_fail,E0597
/// let code = vec![0xc3];
/// let window = uunwind::Window::of(code.as_slice(), uunwind::Unwind::Opaque).register(); // `code` is only borrowed
/// std::mem::forget(window);
/// ```
///
/// ```
/// // A function that does nothing. (The code of a JIT lies in memory that is executable.)
/// let code = vec![0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
/// let window = uunwind::Window::of(code, uunwind::Unwind::FramePointer).function(0, 6, "nothing").register()?;
/// let code = window.unregister()?; // no walk can read it any more: it may be wiped
/// assert_eq!(code.len(), 6);
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Debug)]
pub struct Window<C: AsRef<[u8]> + 'static> {
    /// Taken out when it is unregistered.
    pub(crate) parts: Option<Parts<C>>,
    pub(crate) place: Place,
    order: Order,
}

/// The window in the library's table.
#[derive(Debug)]
pub(crate) struct Place {
    /// Of the code. Its first address is the window's key.
    pub(crate) text: Text,
    /// Once it is out of the table: what is to be waited for.
    pub(crate) ticket: Option<u64>,
}

/// What walks read.
#[derive(Debug)]
pub(crate) struct Parts<C> {
    code: Held<C>,
    by: By,
    pub(crate) table: Held<[Entry]>,
    /// How many entries of the table are valid, where it grows.
    pub(crate) published: Held<AtomicU64>,
    pub(crate) names: Vec<String>,
}

/// A window that is to be registered, and what it points to.
pub(crate) struct Prepared<C> {
    pub(crate) window: sys::Window,
    pub(crate) parts: Parts<C>,
    text: Text,
    order: Order,
}

/// An entry of the table of functions.
#[repr(transparent)]
pub(crate) struct Entry(pub(crate) sys::Function);

// SAFETY: it points to names that the same window owns, and that nobody changes.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}+{:#x}", self.0.start, self.0.len)
    }
}

impl<C: AsRef<[u8]> + 'static> Window<C> {
    /// Begins a window over this code, whose place must not change while it is shared (true of a `Vec`, a `Box`, mapped
    /// memory, and of an array, which is boxed).
    #[must_use]
    pub fn of(code: C, unwind: Unwind) -> WindowBuilder<C> {
        let (kind, data) = match unwind {
            Unwind::FramePointer => (sys::WINDOW_FRAME_POINTER, None),
            Unwind::Opaque => (sys::WINDOW_OPAQUE, None),
            Unwind::EhFrame(data) => (sys::WINDOW_EH_FRAME, Some(Held::of(data))),
            Unwind::SFrame(data) => (sys::WINDOW_SFRAME, Some(Held::of(data))),
            Unwind::Code => (sys::WINDOW_CODE, None),
        };
        WindowBuilder::of(code, |_| By::Data(kind, data))
    }

    /// As [`of`](Self::of), with rules and names by a value, in whose documentation an example is.
    #[must_use]
    pub fn stepped_by<U: Unwinder>(code: C, unwinder: U) -> WindowBuilder<C> {
        WindowBuilder::of(code, |text| By::Callbacks(Callbacks::of(text, unwinder)))
    }

    /// As [`of`](Self::of), with steps and names by a value, in whose documentation an example is.
    #[must_use]
    pub fn stepped_freely<S: Stepper>(code: C, stepper: S) -> WindowBuilder<C> {
        WindowBuilder::of(code, |text| By::Callbacks(Callbacks::stepping(text, stepper)))
    }

    /// Unregisters the window, and gives the code back: no walk can read it any more.
    ///
    /// # Errors
    /// [`Error::Os`] with `ETIMEDOUT`: a walk is under way that may read it. The window comes back with the error: new
    /// walks do not see it, and unregistering it may be tried again.
    pub fn unregister(mut self) -> Result<C, Box<Failed<Window<C>>>> {
        match self.place.leave() {
            Ok(()) => match self.parts.take() {
                Some(parts) => Ok(*parts.code.into_box()),
                None => Err(Failed::with(self, Error::Os { call: "uu_unlink_window", errno: libc::ENOENT })),
            },
            Err(error) => Err(Failed::with(self, error)),
        }
    }

    /// Retires the function that begins at this distance in bytes from the code's first byte: walks that begin
    /// afterwards look neither at its unwind data nor at its name. Its code must not run any more, and nothing else may
    /// take its place while the window is registered. When [`Ticket::synchronize`] has returned, no walk knows the
    /// function any more: what an [`Unwinder`] or a [`Stepper`] keeps for it may be freed. Its name is freed with the
    /// window; where stacks have shown it before, they go on to do so.
    ///
    /// ```
    /// use uunwind::{Unwind, Window};
    ///
    /// let code = vec![0xc3; 64]; // (The code of a JIT lies in memory that is executable.)
    /// let window = Window::of(code, Unwind::FramePointer).function(0, 32, "first").function(32, 32, "second");
    /// let mut window = window.register()?;
    /// window.retire(32)?.synchronize(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] with `ENOENT`: no function begins there, or it is retired.
    pub fn retire(&mut self, start: u32) -> Result<Ticket, Error> {
        let missing = Error::Os { call: "uu_retire", errno: libc::ENOENT };
        let Some(parts) = &self.parts else { return Err(missing) };
        let functions = parts.table.get().get(..parts.names.len()).unwrap_or_default();
        let found = functions.binary_search_by(|entry| match self.order {
            Order::Ascending => entry.0.start.cmp(&start),
            Order::Descending => start.cmp(&entry.0.start),
        });
        let Ok(at) = found else { return Err(missing) };
        // SAFETY: an entry of the table, whose length is written by this thread alone, as one aligned word. No
        // reference to the table is used after this.
        let len = unsafe { AtomicU32::from_ptr(&raw mut (*parts.table.address().cast::<Entry>().add(at)).0.len) };
        if len.swap(0, Ordering::AcqRel) == 0 {
            return Err(missing);
        }
        Ticket::now()
    }

    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// The code.
    pub fn code(&self) -> &[u8] {
        self.parts.as_ref().map_or(&[], |parts| parts.code.get().as_ref())
    }
}

impl<C: AsRef<[u8]> + 'static> WindowBuilder<C> {
    fn of(code: C, by: impl FnOnce(u64) -> By) -> WindowBuilder<C> {
        let code = Held::of(Box::new(code));
        let bytes = code.get().as_ref();
        let text = Text { start: bytes.as_ptr() as u64, len: bytes.len() };
        WindowBuilder { code, text, by: by(text.start), functions: Vec::new() }
    }

    /// The code.
    pub fn code(&self) -> &[u8] {
        self.code.get().as_ref()
    }

    /// Names a function: `start` and `len` in bytes from the code's first byte.
    #[must_use]
    pub fn function(self, start: u32, len: u32, name: &str) -> Self {
        self.function_at(start, len, name, sys::NO_UNWIND)
    }

    /// As [`function`](Self::function), with the distance in bytes of its FDE from the beginning of
    /// [`Unwind::EhFrame`]'s list.
    #[must_use]
    pub fn function_with_fde(self, start: u32, len: u32, name: &str, fde: u32) -> Self {
        self.function_at(start, len, name, fde)
    }

    fn function_at(mut self, start: u32, len: u32, name: &str, fde: u32) -> Self {
        self.functions.push((start, len, fde, name.to_owned()));
        self
    }

    /// Registers it; walks that begin afterwards see it.
    ///
    /// # Errors
    /// Those of [`load`](crate::load); [`Error::Os`] with `EINVAL` (empty code), `EEXIST` (it overlaps a window),
    /// `ENOMEM`, and the others of `uu_register_window()` of `uu.h`. The builder comes back with the error.
    pub fn register(self) -> Result<Window<C>, Box<Failed<WindowBuilder<C>>>> {
        self.prepared(0, Order::Ascending)?.registered()
    }

    /// The window, with `room` for functions that are added later. Error: there is no memory for them.
    pub(crate) fn prepared(mut self, room: usize, order: Order) -> Result<Prepared<C>, Box<Failed<WindowBuilder<C>>>> {
        self.functions.sort_by_key(|function| function.0);
        if order == Order::Descending {
            self.functions.reverse();
        }
        let count = self.functions.len();
        let mut names: Vec<String> = Vec::with_capacity(count);
        let mut table = Vec::new();
        let has_room = count.checked_add(room).is_some_and(|all| table.try_reserve_exact(all).is_ok());
        if !has_room {
            return Err(Failed::with(self, Error::Os { call: "uu_register_window", errno: libc::ENOMEM }));
        }
        for (start, len, unwind, name) in self.functions {
            table.push(Entry::of(start, len, unwind, &name));
            names.push(name);
        }
        table.extend((0..room).map(|_| Entry::of(0, 0, sys::NO_UNWIND, "")));
        let table = Held::of(table.into_boxed_slice());
        let published = Held::of(Box::new(AtomicU64::new(count as u64)));
        let (kind, data, callbacks) = match &self.by {
            By::Data(kind, data) => (*kind, data.as_ref(), None),
            By::Callbacks(callbacks) => (callbacks.kind(), None, Some(callbacks)),
        };
        // Null where there is nothing.
        let (data, data_len) = data.map_or((std::ptr::null(), 0), of_slice);
        let (functions, functions_room) = of_slice(&table);
        let grows = room != 0;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let window = sys::Window {
            size: size_of::<sys::Window>() as u32,
            kind,
            text: self.text.key(),
            text_len: self.text.len,
            user: callbacks.map_or(std::ptr::null_mut(), |callbacks| callbacks.user.address()),
            flags: flag(grows, sys::WINDOW_GROWING) | flag(order == Order::Descending, sys::WINDOW_DESCENDING),
            reserved0: 0,
            unwind: data,
            unwind_len: data_len,
            functions: functions.cast(),
            functions_room,
            published: if grows { published.address().cast() } else { std::ptr::null() },
            rule: callbacks.and_then(|callbacks| callbacks.rule),
            step: callbacks.and_then(|callbacks| callbacks.step),
            name: callbacks.map(|callbacks| callbacks.name),
            reserved: [0; 3],
        };
        let parts = Parts { code: self.code, by: self.by, table, published, names };
        Ok(Prepared { window, parts, text: self.text, order })
    }
}

impl Entry {
    /// The name must live as long as the entry is read.
    pub(crate) fn of(start: u32, len: u32, unwind: u32, name: &str) -> Entry {
        // A String's bytes stay where they are when it moves.
        let (text, name_len) = (name.as_ptr().cast::<c_char>(), u32::try_from(name.len()).unwrap_or(u32::MAX));
        Entry(sys::Function { start, len, unwind, name_len, name: text })
    }
}

impl<C: AsRef<[u8]> + 'static> Prepared<C> {
    pub(crate) fn registered(self) -> Result<Window<C>, Box<Failed<WindowBuilder<C>>>> {
        // SAFETY: what it points to is owned by the window, which frees it only once no walk can read it; it borrows
        // nothing that could end before.
        let result = library::get().map(|api| unsafe { (api.register_window)(&raw const self.window) });
        match result.and_then(|result| Error::check("uu_register_window", result)) {
            Ok(()) => Ok(self.into_window()),
            Err(error) => Err(Failed::with(self.into_builder(), error)),
        }
    }

    /// The window, which is in the library's table.
    pub(crate) fn into_window(self) -> Window<C> {
        let place = Place { text: self.text, ticket: None };
        Window { parts: Some(self.parts), place, order: self.order }
    }

    /// What it was made of. It is not in the library's table.
    pub(crate) fn into_builder(self) -> WindowBuilder<C> {
        let Parts { code, by, table, names, .. } = self.parts;
        let entries = table.get().iter();
        let functions = entries.zip(names).map(|(Entry(of), name)| (of.start, of.len, of.unwind, name)).collect();
        WindowBuilder { code, text: self.text, by, functions }
    }
}

/// Address and length; null if it is empty.
fn of_slice<T>(slice: &Held<[T]>) -> (*const c_void, usize) {
    let len = slice.get().len();
    (if len == 0 { std::ptr::null() } else { slice.address() }, len)
}

impl Text {
    /// By what the library knows a window.
    pub(crate) fn key(self) -> *const c_void {
        // It is compared, and never read through.
        std::ptr::without_provenance(self.start as usize)
    }
}

impl Place {
    /// Takes the window out of the table, and waits for the walks that read it, for at most a second.
    fn leave(&mut self) -> Result<(), Error> {
        const SECOND: u64 = 1_000_000_000;
        let api = library::get()?;
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let mut ticket = 0;
                // SAFETY: a window's key, and a place for the ticket.
                let result = unsafe { (api.unlink_window)(self.text.key(), &raw mut ticket) };
                Error::check("uu_unlink_window", result)?;
                self.ticket = Some(ticket);
                ticket
            }
        };
        // SAFETY: the function has no preconditions.
        Error::check("uu_synchronize", unsafe { (api.synchronize)(ticket, SECOND) })
    }
}

impl<C: AsRef<[u8]> + 'static> Drop for Window<C> {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            if self.place.leave().is_err() {
                std::mem::forget(parts);
            }
        }
    }
}
