//! Shadow of global buffers.

use super::cell::{Cell, Conflict, Touch};
use super::pool::{More, Pool};
use super::record::{OWNER, Rec, View, lanes_in, weaker};

/// Words of one page of global shadow.
const PAGE_WORDS: usize = 256;

/// Accesses of other gangs that a global word remembers; a write after all of these but not after one more is missed.
const MAX_FAR: usize = 8;

/// A global word: the accesses of the last gang that touched it, and, in the owner's bits of the codes, which bytes were
/// ever read (low) and written (high).
#[derive(Clone, Copy, Debug, Default)]
struct GlobalCell {
    cell: Cell<1>,
    gang: u32,
}

impl GlobalCell {
    fn ever(&self) -> (u8, u8) {
        ((self.cell.codes >> 24) as u8 & 15, (self.cell.codes >> 28) as u8)
    }
}

/// A page of words. Most pages of an output are only ever written, by one gang: those take less room.
enum Page {
    Written(Box<WrittenPage>),
    Full(Box<[GlobalCell; PAGE_WORDS]>),
}

/// Words that one gang has written, each write following the one before.
struct WrittenPage {
    gang: u32,
    writes: [Rec; PAGE_WORDS],
    codes: [u32; PAGE_WORDS],
}

impl WrittenPage {
    /// Applies a write; false when the page cannot hold it.
    #[inline(always)]
    fn write(&mut self, word: usize, tag: u32, rec: Rec, view: &View) -> bool {
        let w = self.writes[word];
        let mask = rec.mask();
        let follows = !w.some() || (w.mask() & !mask == 0 && !weaker(rec, w) && view.surely(w));
        if self.gang != tag || !follows {
            return false;
        }
        self.writes[word] = rec;
        self.codes[word] = view.codes;
        true
    }

    fn expand(&self) -> Box<[GlobalCell; PAGE_WORDS]> {
        let mut out = Box::new([GlobalCell::default(); PAGE_WORDS]);
        for (k, cell) in out.iter_mut().enumerate().filter(|(k, _)| self.writes[*k].some()) {
            cell.gang = self.gang;
            cell.cell.write = self.writes[k];
            cell.cell.codes = self.codes[k] | u32::from(self.writes[k].mask()) << 28;
        }
        out
    }
}

impl Page {
    /// Bytes ever read and written of a word.
    fn ever(&self, word: usize) -> (u8, u8) {
        match self {
            Self::Written(p) => (0, p.writes[word].mask()),
            Self::Full(p) => p[word].ever(),
        }
    }
}

/// Shadow of global buffers, allocated by the page on first touch.
#[derive(Default)]
pub(crate) struct GlobalShadow {
    buffers: Vec<Vec<Option<Page>>>,
    pool: Pool,
}

/// An earlier access of another gang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarConflict {
    pub(crate) gang: u64,
    pub(crate) other: Rec,
    pub(crate) what: &'static str,
}

impl GlobalShadow {
    #[inline(always)]
    fn page(buffers: &mut Vec<Vec<Option<Page>>>, buffer: usize, page: usize) -> &mut Option<Page> {
        if buffers.len() <= buffer {
            buffers.resize_with(buffer + 1, Vec::new);
        }
        let pages = &mut buffers[buffer];
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        &mut pages[page]
    }

    /// The cell of a word, in a page that may have to be made or expanded.
    #[inline(always)]
    fn cell(page: &mut Option<Page>, word: usize) -> &mut GlobalCell {
        if !matches!(page, Some(Page::Full(_))) {
            let full = match page.take() {
                Some(Page::Written(p)) => p.expand(),
                _ => Box::new([GlobalCell::default(); PAGE_WORDS]),
            };
            *page = Some(Page::Full(full));
        }
        match page {
            Some(Page::Full(p)) => &mut p[word],
            _ => unreachable!("the page was just made full"),
        }
    }

    /// Applies an access of gang `gang`. Gangs are numbered from zero and remembered from one.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        place: (usize, usize),
        gang: u64,
        rec: Rec,
        kind: Touch,
        view: &View,
    ) -> (Option<Conflict>, Option<FarConflict>) {
        let Self { buffers, pool } = self;
        let tag = gang as u32 + 1;
        let (page, word) = (Self::page(buffers, place.0, place.1 / PAGE_WORDS), place.1 % PAGE_WORDS);
        if kind == Touch::Write && !rec.asynchronous() && !rec.atomic() {
            let new = || {
                Page::Written(Box::new(WrittenPage {
                    gang: tag,
                    writes: [Rec::default(); PAGE_WORDS],
                    codes: [0; PAGE_WORDS],
                }))
            };
            if let Page::Written(p) = page.get_or_insert_with(new)
                && p.write(word, tag, rec, view)
            {
                return (None, None);
            }
        }
        let slot = Self::cell(page, word);
        slot.cell.codes |= u32::from(rec.mask()) << if kind == Touch::Read { 24 } else { 28 };
        if slot.gang != tag {
            if slot.gang != 0 {
                Self::file(slot, pool, view);
            }
            slot.gang = tag;
        }
        if slot.cell.more == 0 && slot.cell.plain(rec, kind, view, |_| true) {
            return (None, None);
        }
        let near = slot.cell.touch_all(rec, kind, view, |_| true, pool);
        let far = if slot.cell.more == 0 { None } else { Self::far(slot, pool, rec, kind, view) };
        (near, far)
    }

    /// Moves the accesses of the gang before to the list of others, except those that the present access is known to
    /// follow.
    #[cold]
    fn file(slot: &mut GlobalCell, pool: &mut Pool, view: &View) {
        let old = std::mem::take(&mut slot.cell);
        slot.cell.more = old.more;
        slot.cell.codes = old.codes & OWNER;
        let Some(gang) = u64::from(slot.gang).checked_sub(1) else { return };
        if let Some(list) = pool.get(old.more) {
            list.iter_mut().filter(|m| m.gang == 0).for_each(|m| m.gang = gang + 1);
        }
        let inline = [
            More { rec: old.write, lanes: old.codes, write: true, gang: gang + 1 },
            More { rec: old.reads[0], lanes: old.read_lanes[0], write: false, gang: gang + 1 },
        ];
        for m in inline.into_iter().filter(|m| m.rec.some()) {
            let full = pool.get(slot.cell.more).is_some_and(|l| l.len() >= MAX_FAR);
            if !full && !knows(view, &m, 15) {
                pool.push(&mut slot.cell.more, m);
            }
        }
    }

    /// The conflict with an access of another gang; each is reported once.
    #[cold]
    fn far(slot: &mut GlobalCell, pool: &mut Pool, rec: Rec, kind: Touch, view: &View) -> Option<FarConflict> {
        let mask = rec.mask();
        let mut found: Option<FarConflict> = None;
        let list = pool.get(slot.cell.more)?;
        list.retain_mut(|m| {
            let common = m.rec.mask() & mask;
            if m.gang == 0 || common == 0 || !(m.write || kind == Touch::Write) {
                return true;
            }
            let fine = (m.rec.atomic() && rec.atomic()) || knows(view, m, common);
            if !fine {
                let what = match (kind, m.write) {
                    (Touch::Read, _) => "read-after-write",
                    (_, true) => "write-after-write",
                    _ => "write-after-read",
                };
                // A write names the write before it rather than a read.
                if found.is_none() || m.write {
                    found = Some(FarConflict { gang: m.gang - 1, other: m.rec, what });
                }
            }
            if kind == Touch::Write {
                m.rec = m.rec.without(mask);
            }
            m.rec.some()
        });
        pool.release_empty(&mut slot.cell.more);
        found
    }

    /// Whether any word was touched in conflicting ways by the gangs of both shadows.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        self.buffers.iter().zip(&other.buffers).any(|(a, b)| {
            a.iter().zip(b).any(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => (0..PAGE_WORDS)
                    .map(|k| (a.ever(k), b.ever(k)))
                    .any(|((xr, xw), (yr, yw))| xw & (yw | yr) != 0 || xr & yw != 0),
                _ => false,
            })
        })
    }
}

/// Whether an access of another gang is known.
fn knows(view: &View, m: &More, mask: u8) -> bool {
    view.clock.knows_far(m.gang - 1, m.rec.thread(), m.rec.clock(), lanes_in(m.lanes(mask)))
}
