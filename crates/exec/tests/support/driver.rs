//! Phases and entries of a system run one by one, without the engine.

use super::runtime;
use spinec_exec::runtime::{Mode, ProgramId, RequestId, Runtime};
use spinec_ir::ir::{Func, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;

struct Function {
    program: ProgramId,
    func: usize,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

/// A runtime with the functions that were added to it.
pub struct Driver {
    pub runtime: Box<dyn Runtime>,
    functions: BTreeMap<String, Function>,
}

pub type Values = BTreeMap<String, Tensor>;

impl Driver {
    pub fn new(system: &System) -> Driver {
        Driver { runtime: runtime(system), functions: BTreeMap::new() }
    }

    /// A driver with the probe entries.
    pub fn probing(system: &System) -> Driver {
        let mut d = Driver::new(system);
        for name in ["rows", "keep", "block"] {
            d.entry(system, name);
        }
        d
    }

    /// Adds an entry under its name.
    pub fn entry(&mut self, system: &System, name: &str) {
        let lowered = system.entry_module(name, None, None).unwrap_or_else(|e| panic!("{:?}", messages(e)));
        let f = &lowered.module.funcs[0];
        let (inputs, outputs) = (f.inputs.clone(), f.outputs.clone());
        let program = self.runtime.add(lowered.module).expect("the module is taken");
        self.functions.insert(name.to_string(), Function { program, func: 0, inputs, outputs });
    }

    /// Adds all phases for a law, as `LAW/PHASE`.
    pub fn phases(&mut self, system: &System, law: &str, candidates: &str) {
        self.phases_with(system, law, candidates, &|_| ());
    }

    /// As [`Driver::phases`], with coins as inputs: `coin1` for those of purpose 1, and so on.
    pub fn phases_with_coins(&mut self, system: &System, law: &str, candidates: &str) {
        self.phases_with(system, law, candidates, &coins_as_inputs);
    }

    fn phases_with(&mut self, system: &System, law: &str, candidates: &str, change: &dyn Fn(&mut Func)) {
        let choices =
            BTreeMap::from([("law".to_string(), law.to_string()), ("candidates".to_string(), candidates.to_string())]);
        let mut lowered = system.phase_module(&choices, &|_, _| true).unwrap_or_else(|e| panic!("{:?}", messages(e)));
        lowered.module.funcs.iter_mut().for_each(change);
        let names: Vec<(Vec<String>, Vec<String>)> =
            lowered.module.funcs.iter().map(|f| (f.inputs.clone(), f.outputs.clone())).collect();
        let program = self.runtime.add(lowered.module).expect("the module is taken");
        for p in lowered.phases {
            let (inputs, outputs) = names[p.func].clone();
            self.functions.insert(format!("{law}/{}", p.name), Function { program, func: p.func, inputs, outputs });
        }
    }

    /// Runs a function; inputs are found by name.
    pub fn run(&mut self, name: &str, given: &Values, requests: &[RequestId], mode: Mode) -> Values {
        let f = &self.functions[name];
        let args: Vec<&Tensor> =
            f.inputs.iter().map(|i| given.get(i).unwrap_or_else(|| panic!("`{name}` needs `{i}`"))).collect();
        let out =
            self.runtime.run(f.program, f.func, &args, requests, mode, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        f.outputs.iter().cloned().zip(out).collect()
    }

    pub fn open(&mut self) -> RequestId {
        self.runtime.open(600).expect("a request is opened")
    }

    /// Rows of several requests from each one's committed length on; shorter ones are padded with `pad`.
    pub fn rows(&mut self, ids: &[&[u32]], requests: &[RequestId], mode: Mode, pad: u32) -> Values {
        let widest = ids.iter().map(|i| i.len()).max().unwrap_or(0);
        let mut tokens = Vec::new();
        let mut positions = Vec::new();
        for (i, r) in ids.iter().zip(requests) {
            let at = self.runtime.len(*r);
            tokens.extend((0..widest).map(|t| *i.get(t).unwrap_or(&pad) as i32));
            positions.extend((at..at + widest).map(|p| p as i32));
        }
        let n = ids.len();
        let given = BTreeMap::from([
            ("tokens".to_string(), Tensor::i32(vec![n, widest], tokens)),
            ("positions".to_string(), Tensor::i32(vec![n, widest], positions)),
            ("rows".to_string(), Tensor::i32(vec![n], ids.iter().map(|i| i.len() as i32).collect())),
        ]);
        let mut out = self.run("rows", &given, requests, mode);
        out.insert("positions".into(), given["positions"].clone());
        out
    }

    /// Feeds rows and keeps the first `keep` of each request, draft context included.
    pub fn feed(&mut self, ids: &[&[u32]], requests: &[RequestId], keep: &[usize], mode: Mode) -> Values {
        let mut out = self.rows(ids, requests, mode, 0);
        out.insert("keep".into(), Tensor::i32(vec![keep.len()], keep.iter().map(|k| *k as i32).collect()));
        // As the engine does: a run forgets rows that were not committed.
        for (r, k) in requests.iter().zip(keep) {
            self.runtime.commit(*r, *k).expect("rows are committed");
        }
        self.run("keep", &out, requests, Mode::Immediate);
        out
    }

    /// The state after these ids, computed one row at a time, and the logits of every row.
    pub fn computed_plainly(&mut self, ids: &[u32]) -> (Values, Vec<Tensor>) {
        let r = self.open();
        let mut logits = Vec::new();
        for id in ids {
            logits.push(self.feed(&[&[*id]], &[r], &[1], Mode::Immediate).remove("logits").expect("logits"));
        }
        let state = self.runtime.export(r).expect("state");
        self.runtime.close(r);
        (state, logits)
    }
}

/// Every coin becomes an input; the op that made it stays without a user.
fn coins_as_inputs(f: &mut Func) {
    let coins: Vec<(i64, ValueId)> = f
        .ops
        .iter()
        .filter(|o| o.code == Opcode::Coin)
        .map(|o| (o.int("purpose").expect("a purpose"), o.results[0]))
        .collect();
    for (purpose, coin) in coins {
        let ty = f.ty(coin).clone();
        let body = f.body;
        let input = f.add_param(body, ty);
        f.inputs.push(format!("coin{purpose}"));
        let places = f.ops.iter_mut().map(|o| &mut o.operands).chain(f.regions.iter_mut().map(|r| &mut r.yields));
        for v in places.flatten().filter(|v| **v == coin) {
            *v = input;
        }
    }
}

fn messages(d: spinec_ir::diag::Diagnostics) -> Vec<String> {
    d.iter().map(|d| d.message.clone()).collect()
}

/// Rows `from..to` of request `n` of a batch tensor [N, T, ...].
pub fn part(t: &Tensor, n: usize, from: usize, to: usize) -> Tensor {
    let whole = super::rows(t, n, n + 1);
    let inner = Tensor::new(whole.dtype, whole.shape[1..].to_vec(), whole.data).expect("the same elements");
    super::rows(&inner, from, to)
}

/// Panics with the name of the first tensor whose bits differ.
pub fn assert_same_state(a: &Values, b: &Values, what: &str) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{what}: names");
    for (name, t) in a {
        assert_eq!(t.shape, b[name].shape, "{what}: shape of {name}");
        assert!(super::bits(t) == super::bits(&b[name]), "{what}: bits of {name} differ");
    }
}
