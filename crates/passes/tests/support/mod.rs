//! Loading the systems of the repository, and running modules with derived weights on the reference interpreter.
#![allow(dead_code)]

use spinec_ir::diag::render;
use spinec_ir::interp::{Mode, NoObserver, WeightStore, run};
use spinec_ir::ir::{Module, WeightId};
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::spec::{Host, Loaded, load};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use spinec_passes::cost::Device;
use spinec_passes::pass::Program;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file system.
pub struct Disk;

impl Host for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|e| e.to_string())
    }
}

/// The record of the release's device.
pub fn h200() -> Device {
    Device::from_yaml("h200.yaml", include_str!("../../../../devices/h200.yaml"))
        .unwrap_or_else(|(sources, diags)| panic!("{}", render(&diags.into_sorted(), &sources, false, 120)))
}

/// A device on which only arithmetic takes time: what it prefers does not depend on the size of a model.
pub fn arithmetic(resident_ps_per_mib: u64) -> Device {
    let rate = 1_000_000_000;
    Device {
        name: "arithmetic".to_owned(),
        bandwidth: u64::MAX,
        flops_16: rate,
        flops_32: rate,
        flops_64: rate,
        launch_ps: 0,
        resident_ps_per_mib,
        ..h200()
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository root exists")
}

/// A system of the repository.
pub fn system(spec: &str, numerics: Numerics, checkpoints: &[(&str, String)]) -> System {
    let over = Overrides {
        numerics: Some(numerics),
        no_limits: true,
        checkpoints: checkpoints.iter().map(|(n, d)| (n.to_string(), root().join(d).display().to_string())).collect(),
        ..Overrides::default()
    };
    match load(&root().join(spec).display().to_string(), &Disk, &over) {
        Loaded::System(l) => {
            assert!(!l.diags.has_errors(), "{}", render(&l.diags.into_sorted(), &l.sources, false, 120));
            l.system.expect("a system without errors is there")
        }
        Loaded::Graph { .. } => panic!("{spec} is not a system"),
    }
}

/// The draft phase with one law, alone in its module, as the engine asks for it. `q` adds the law of the draws.
pub fn draft(system: &System, law: &str) -> Module {
    let choices =
        BTreeMap::from([("law".to_string(), law.to_string()), ("candidates".to_string(), "coarse".to_string())]);
    let asked = |phase: &str, output: &str| {
        phase == "draft" && (matches!(output, "proposal" | "finite") || (output == "q" && law != "greedy"))
    };
    let phases = system.phase_module(&choices, &asked).unwrap_or_else(|_| panic!("the phases are lowered"));
    let mut module = phases.module;
    module.funcs.retain(|f| f.name.starts_with("draft"));
    // The verify phase reads the law of the draws; alone, the greedy draft need not make it.
    if law == "greedy" {
        let func = &mut module.funcs[0];
        let keep: Vec<bool> = func.outputs.iter().map(|o| o != "q").collect();
        let mut k = keep.iter();
        func.outputs.retain(|_| *k.next().expect("one flag an output"));
        let body = func.body.index();
        let mut k = keep.iter();
        func.regions[body].yields.retain(|_| *k.next().expect("one flag an output"));
    }
    module
}

/// All phases of a system, as the engine asks for them.
pub fn phases(spec: &str, law: &str) -> Module {
    phases_of(&system(spec, Numerics::BF16, &[]), law)
}

/// The same of a system that is loaded.
pub fn phases_of(system: &System, law: &str) -> Module {
    let choices = BTreeMap::from([("law".to_owned(), law.to_owned()), ("candidates".to_owned(), "coarse".to_owned())]);
    let asked = |phase: &str, output: &str| {
        matches!(
            (phase, output),
            ("prefill" | "decode", "token" | "sound")
                | ("draft", "proposal" | "finite")
                | ("verify", "accepted" | "token" | "sound")
        )
    };
    system.phase_module(&choices, &asked).unwrap_or_else(|_| panic!("the phases are lowered")).module
}

/// The value of a derived weight, all its elements.
pub fn loaded(p: &Program, i: usize, weights: &dyn WeightStore) -> Result<Tensor, String> {
    let out = run(&p.load, &p.load.funcs[i], &[], weights, &mut [], Mode::Immediate, &mut NoObserver);
    Ok(out.map_err(|e| format!("{e:?}"))?.remove(0))
}

/// One element of it.
pub fn element(p: &Program, i: usize, index: &[i64], all: Tensor) -> Result<Tensor, String> {
    if p.module.weight(p.derived[i].weight).loops.is_empty() {
        return Ok(all);
    }
    let at = p.element(i, index).ok_or("no such element")?;
    let shape = all.shape[1..].to_vec();
    let n: usize = shape.iter().product();
    let part = Tensor::f64(shape, all.to_f64()[at * n..(at + 1) * n].to_vec());
    part.cast(all.dtype).ok_or_else(|| "the dtype converts".to_owned())
}

/// Stored weights of a checkpoint pair, and on top of them those a program derives, computed when first asked for.
pub struct Store<'a> {
    pub module: &'a Module,
    pub files: BTreeMap<String, BTreeMap<String, Tensor>>,
    pub derived: Option<&'a Program>,
    pub known: RefCell<BTreeMap<WeightId, Tensor>>,
}

impl<'a> Store<'a> {
    pub fn new(
        module: &'a Module,
        files: BTreeMap<String, BTreeMap<String, Tensor>>,
        derived: Option<&'a Program>,
    ) -> Self {
        Store { module, files, derived, known: RefCell::default() }
    }
}

impl WeightStore for Store<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        if let Some(p) = self.derived
            && let Some(i) = p.derived.iter().position(|d| d.weight == id)
        {
            if let Some(t) = self.known.borrow().get(&id) {
                return element(p, i, index, t.clone());
            }
            let t = loaded(p, i, self)?;
            self.known.borrow_mut().insert(id, t.clone());
            return element(p, i, index, t);
        }
        let w = self.module.weights.get(id.index()).ok_or("no such weight")?;
        let source = w.source.as_ref().ok_or("the weight has no source")?;
        let mut name = source.tensor.clone();
        for ((var, _), i) in w.loops.iter().zip(index) {
            name = name.replace(&format!("{{{var}}}"), &i.to_string());
        }
        let t =
            self.files.get(&source.checkpoint).and_then(|f| f.get(&name)).ok_or_else(|| format!("no tensor {name}"))?;
        t.cast(w.ty.dtype).ok_or_else(|| format!("{name} does not convert"))
    }
}

/// The tensors of a safetensors file below the root, floats as f64.
pub fn tensors(path: &str) -> BTreeMap<String, Tensor> {
    use safetensors::{Dtype, SafeTensors};
    let bytes = std::fs::read(root().join(path)).expect("the file is there");
    let file = SafeTensors::deserialize(&bytes).expect("the file is valid");
    file.iter()
        .map(|(name, view)| {
            let (shape, data) = (view.shape().to_vec(), view.data());
            let tensor = match view.dtype() {
                Dtype::F64 => Tensor::f64(
                    shape,
                    data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect(),
                ),
                Dtype::F32 => Tensor::f64(
                    shape,
                    data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")).into()).collect(),
                ),
                Dtype::BF16 => Tensor::f64(
                    shape,
                    data.chunks_exact(2)
                        .map(|b| {
                            f32::from_bits(u32::from(u16::from_le_bytes(b.try_into().expect("2 bytes"))) << 16).into()
                        })
                        .collect(),
                ),
                Dtype::I32 => Tensor::i32(
                    shape,
                    data.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(),
                ),
                _ => return (name.to_owned(), Tensor::zeros(spinec_ir::ty::DType::U8, vec![0])),
            };
            (name.to_owned(), tensor)
        })
        .collect()
}

/// max |a - b| / max |b|; NaN anywhere is infinite.
pub fn rel(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape, b.shape, "shapes differ");
    let (a, b) = (a.to_f64(), b.to_f64());
    if a.iter().chain(&b).any(|x| x.is_nan()) {
        return f64::INFINITY;
    }
    let diff = a.iter().zip(&b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let scale = b.iter().map(|x| x.abs()).fold(0.0, f64::max);
    if diff == 0.0 { 0.0 } else { diff / scale }
}
