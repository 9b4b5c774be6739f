//! The sampler of a process that may call exec, which takes it away: another one is put into the new program.

use super::{Declined, Injected, Memories};
use crate::dump::exe;
use crate::prepared::Image;
use crate::record::Attach;
use std::path::Path;
use std::time::{Duration, Instant};
use uunwind_recorder::facts::FactsPublisher;
use uunwind_ring::FLAG_NO_CHILDREN;

/// How long after an exec a sampler may fail to go into the new program, which is just being loaded.
const PATIENCE: Duration = Duration::from_secs(2);

/// The samplers of a process, of which there is one at a time.
pub struct Followed<'a> {
    attach: &'a Attach,
    object: &'a Path,
    injected: Option<Injected>,
    /// The image without one, and when it was first seen, after exec has taken the last one away.
    without: Option<(Image, Instant)>,
    /// How long threads stood for those before, and how often one was borrowed.
    before: (Duration, u32),
    /// Number of programs that the process has called by exec, and that have got a sampler.
    pub programs: u32,
}

impl<'a> Followed<'a> {
    /// Puts the first one in. `object`: the sampler's file.
    pub fn begin(attach: &'a Attach, object: &'a Path) -> Result<(Followed<'a>, Memories), Declined> {
        let (injected, memories) = begin(attach, object)?;
        let (injected, before) = (Some(injected), (Duration::ZERO, 0));
        Ok((Followed { attach, object, injected, without: None, before, programs: 0 }, memories))
    }

    /// Looks whether the process has called exec. Returns the memories of another sampler, which was put into the new
    /// program; or why none can be.
    pub fn look(&mut self) -> Result<Option<Memories>, Declined> {
        let last = self.without.as_ref().map(|(image, _)| image);
        let last = last.or(self.injected.as_ref().map(|injected| &injected.image));
        if let Some(image) = last.and_then(|last| another(self.attach.pid, last)) {
            self.before = self.costs();
            (self.injected, self.without) = (None, Some((image, Instant::now())));
        }
        let Some((_, since)) = self.without else { return Ok(None) };
        match begin(self.attach, self.object) {
            Ok((injected, memories)) => {
                (self.injected, self.without) = (Some(injected), None);
                self.programs += 1;
                Ok(Some(memories))
            }
            Err(declined) if since.elapsed() >= PATIENCE => Err(declined),
            Err(_) => Ok(None),
        }
    }

    /// The sampler that is in the process.
    pub fn injected(&mut self) -> Option<&mut Injected> {
        self.injected.as_mut()
    }

    /// How long threads stood for them, and how often one was borrowed.
    pub fn costs(&self) -> (Duration, u32) {
        let (stood, borrowed) = self.before;
        self.injected.as_ref().map_or(self.before, |now| (stood + now.stood, borrowed + now.borrowed))
    }

    /// Takes the sampler out. `None`: the process is as it was before; otherwise what is left there, and why.
    pub fn leave(self, facts: &FactsPublisher) -> Option<String> {
        self.injected.and_then(|injected| injected.leave(facts))
    }
}

/// The process's image, if exec has made another one than this.
fn another(pid: u32, last: &Image) -> Option<Image> {
    let now = Image::of(pid);
    (now != *last && !now.is_being_made() && !exe(pid).is_empty()).then_some(now)
}

fn begin(attach: &Attach, object: &Path) -> Result<(Injected, Memories), Declined> {
    Injected::begin(attach.pid, object, attach.rate, attach.flags | FLAG_NO_CHILDREN)
}
