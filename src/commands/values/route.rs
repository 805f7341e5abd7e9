//! The way from one value to another.

use super::flow::{At, Flow, Launch, Way, compatible};
use spinec_ir::ir::ValueId;
use std::collections::{BTreeSet, VecDeque};

/// How a value reaches another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Launches between the two, in the order data goes.
    pub between: Vec<Launch>,
    /// Loops and cases on the way, in the order data goes, each with the value that goes in.
    pub ways: Vec<(Way, ValueId)>,
}

struct Stop {
    value: ValueId,
    at: At,
    /// The launch that uses the value.
    launch: Option<Launch>,
    back: Option<usize>,
    way: Way,
}

impl Flow<'_> {
    /// The way from one of some values to one of others with the fewest launches between them; none if no value goes there.
    pub fn route(&self, from: &[(ValueId, At)], to: &[(ValueId, At)]) -> Option<Route> {
        let launch = |v: ValueId, at: &At| {
            // What readers repeat is part of their launches.
            let mut own = self.own(v, at);
            if own.len() == 1 { own.pop() } else { None }
        };
        let mut stops: Vec<Stop> = Vec::new();
        let mut open: VecDeque<usize> = VecDeque::new();
        for (v, at) in to {
            open.push_back(stops.len());
            stops.push(Stop { value: *v, at: at.clone(), launch: launch(*v, at), back: None, way: Way::Read });
        }
        let mut seen: BTreeSet<(ValueId, At, Option<Launch>)> = BTreeSet::new();
        while let Some(i) = open.pop_front() {
            let (value, at, user) = (stops[i].value, stops[i].at.clone(), stops[i].launch.clone());
            if !seen.insert((value, at.clone(), user.clone())) {
                continue;
            }
            if stops[i].back.is_some() && from.iter().any(|(v, a)| *v == value && compatible(a, &at)) {
                return Some(self.traced(&stops, i, launch(value, &at)));
            }
            for s in self.from(value, &at) {
                let own = launch(s.value, &s.at);
                let same = own.is_none() || user.is_none() || own == user;
                let stop =
                    Stop { launch: own.or_else(|| user.clone()), value: s.value, at: s.at, back: Some(i), way: s.way };
                if same {
                    open.push_front(stops.len())
                } else {
                    open.push_back(stops.len())
                }
                stops.push(stop);
            }
        }
        None
    }

    fn traced(&self, stops: &[Stop], found: usize, first: Option<Launch>) -> Route {
        let mut route = Route { between: Vec::new(), ways: Vec::new() };
        let (mut step, mut last) = (Some(found), None);
        while let Some(s) = step.map(|i| &stops[i]) {
            route.between.extend(s.launch.clone());
            // A loop that is one kernel separates nothing.
            let separates = match s.way {
                Way::Read => false,
                Way::Inside(op) | Way::Begins(op) | Way::Carried(op) | Way::Ends(op) | Way::Case(op) => {
                    self.computing(op).is_empty()
                }
            };
            if separates {
                route.ways.push((s.way, s.value));
            }
            last = s.launch.clone();
            step = s.back;
        }
        route.between.dedup();
        let ends = [first, last];
        route.between.retain(|l| !ends.contains(&Some(l.clone())));
        route
    }
}
