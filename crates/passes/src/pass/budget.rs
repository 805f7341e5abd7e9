//! Which derived weights are kept within a budget, over all regions of a module: those that save most together.

use super::PassError;
use crate::choose::{Chooser, Choosing};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Most states looked at. Each decides about one derived weight, the largest first; a module has a handful of large ones.
const STATES: usize = 256;

/// A region to be served.
pub(super) struct Client<'a> {
    pub chooser: Chooser<'a>,
    /// How often it runs when every function runs once.
    pub runs: u64,
    /// Definitions of all it may derive.
    definitions: BTreeSet<String>,
}

impl<'a> Client<'a> {
    pub fn new(chooser: Chooser<'a>, runs: u64) -> Client<'a> {
        let definitions = chooser.definitions();
        Client { chooser, runs, definitions }
    }
}

/// What all regions have under some bans.
#[derive(Clone)]
pub(super) struct Served {
    /// The choice of every region.
    pub chosen: Vec<Choosing>,
    /// All derived weights by definition, with their bytes. Those several regions use are there once.
    pub derived: BTreeMap<String, u64>,
    /// Time of all regions, each as often as it runs.
    time_ps: u128,
}

impl Served {
    pub fn bytes(&self) -> u64 {
        self.derived.values().fold(0, |sum, b| sum.saturating_add(*b))
    }

    /// The definitions of all derived weights.
    pub fn present(&self) -> BTreeSet<String> {
        self.derived.keys().cloned().collect()
    }
}

/// A state of the search: what may not be derived, what stays if it is, and what the regions have then.
struct State {
    banned: BTreeSet<String>,
    kept: BTreeSet<String>,
    served: Served,
}

/// Region, bans and derived weights of other regions, as far as they concern it.
type Case = (usize, BTreeSet<String>, BTreeSet<String>);

/// All regions, with what was found for them before.
pub(super) struct Clients<'a> {
    pub all: Vec<Client<'a>>,
    known: RefCell<BTreeMap<Case, Choosing>>,
}

impl<'a> Clients<'a> {
    pub fn new(all: Vec<Client<'a>>) -> Clients<'a> {
        Clients { all, known: RefCell::default() }
    }

    fn choose(
        &self,
        region: usize,
        banned: &BTreeSet<String>,
        present: &BTreeSet<String>,
    ) -> Result<Choosing, PassError> {
        let client = &self.all[region];
        let of = |all: &BTreeSet<String>| all.intersection(&client.definitions).cloned().collect();
        let case: Case = (region, of(banned), of(present));
        if let Some(known) = self.known.borrow().get(&case) {
            return Ok(known.clone());
        }
        let chosen = client.chooser.choose(&case.1, &case.2).map_err(PassError::Internal)?;
        self.known.borrow_mut().insert(case, chosen.clone());
        Ok(chosen)
    }

    /// Every region at its best without the banned weights. What one region pays for, others have for nothing.
    pub fn serve(&self, banned: &BTreeSet<String>) -> Result<Served, PassError> {
        let mut present: BTreeSet<String> = BTreeSet::new();
        for region in 0..self.all.len() {
            present.extend(self.choose(region, banned, &present)?.derived.into_keys());
        }
        let mut out = Served { chosen: Vec::new(), derived: BTreeMap::new(), time_ps: 0 };
        for (region, client) in self.all.iter().enumerate() {
            let chosen = self.choose(region, banned, &present)?;
            out.derived.extend(chosen.derived.iter().map(|(text, (_, bytes))| (text.clone(), *bytes)));
            out.time_ps += u128::from(chosen.time_ps) * u128::from(client.runs);
            out.chosen.push(chosen);
        }
        Ok(out)
    }

    /// The fastest of all choices whose derived weights fit into `budget`, by branch and bound: what a choice may not derive
    /// only makes it slower, so the first fitting one in the order of time is the best.
    pub fn within(&self, first: Served, budget: u64) -> Result<Served, PassError> {
        // In the order of time, then of making.
        let mut open: BTreeMap<(u128, usize), State> = BTreeMap::new();
        open.insert((first.time_ps, 0), State { banned: BTreeSet::new(), kept: BTreeSet::new(), served: first });
        let mut made = 1;
        while let Some((_, State { banned, kept, served })) = open.pop_first() {
            if served.bytes() <= budget {
                return Ok(served);
            }
            if made > STATES {
                return self.shrink(banned, served, budget);
            }
            let undecided = served.derived.iter().filter(|(text, _)| !kept.contains(*text));
            let Some((item, bytes)) = undecided.max_by_key(|(text, bytes)| (**bytes, std::cmp::Reverse(*text))) else {
                continue;
            };
            let mut more = banned.clone();
            more.insert(item.clone());
            let fewer = self.serve(&more)?;
            open.insert((fewer.time_ps, made), State { banned: more, kept: kept.clone(), served: fewer });
            let of_kept =
                kept.iter().filter_map(|k| served.derived.get(k)).fold(*bytes, |sum, b| sum.saturating_add(*b));
            if of_kept <= budget {
                let mut kept = kept;
                kept.insert(item.clone());
                open.insert((served.time_ps, made + 1), State { banned, kept, served });
            }
            made += 2;
        }
        Err(PassError::Internal("no choice of derived weights fits, though none would".to_owned()))
    }

    /// Drops what costs least time for its bytes until the rest fits.
    fn shrink(&self, mut banned: BTreeSet<String>, mut served: Served, budget: u64) -> Result<Served, PassError> {
        while served.bytes() > budget {
            let mut best: Option<(u128, String, Served)> = None;
            for (text, bytes) in &served.derived {
                let mut more = banned.clone();
                more.insert(text.clone());
                let fewer = self.serve(&more)?;
                let lost = fewer.time_ps.saturating_sub(served.time_ps);
                let worth = (lost << 20) / u128::from((*bytes).max(1));
                if best.as_ref().is_none_or(|b| worth < b.0) {
                    best = Some((worth, text.clone(), fewer));
                }
            }
            let Some((_, text, fewer)) = best else { break };
            banned.insert(text);
            served = fewer;
        }
        Ok(served)
    }
}
