//! The argument specification of `ptx run`.
//!
//! ```json
//! {"args": [
//!   {"buffer": "x.bin", "mode": "in"},
//!   {"buffer": "y.bin", "mode": "out", "bytes": 4096},
//!   {"i32": 1024},
//!   {"tensor_map": {"buffer": "a.bin", "mode": "in", "type": "bf16", "dims": [64, 128], "strides": [128],
//!                   "box": [64, 64], "swizzle": 128}}
//! ]}
//! ```
//! The same file named twice is the same buffer.

use crate::exec::launch::Arg;
use crate::memory::{Access, BufferId, Memory};
use crate::tensormap::{TensorMap, TensorType};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of one buffer beyond which a specification is refused.
const MAX_BUFFER: u64 = 1 << 36;

/// Why arguments cannot be bound.
pub(super) enum SpecError {
    /// The specification is wrong.
    Spec(String),
    /// A file cannot be read.
    File(String),
}

/// Arguments with their memory.
pub(super) struct Bound {
    pub(super) memory: Memory,
    pub(super) args: Vec<Arg>,
    /// Buffers to write back.
    pub(super) outputs: Vec<(BufferId, PathBuf)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    args: Vec<RawArg>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    In,
    Out,
    InOut,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArg {
    buffer: Option<String>,
    mode: Option<Mode>,
    bytes: Option<u64>,
    offset: Option<u64>,
    u32: Option<u32>,
    i32: Option<i32>,
    u64: Option<u64>,
    i64: Option<i64>,
    f32: Option<f64>,
    f64: Option<f64>,
    tensor_map: Option<RawMap>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMap {
    buffer: String,
    mode: Mode,
    bytes: Option<u64>,
    #[serde(rename = "type")]
    ty: TensorType,
    dims: Vec<u64>,
    #[serde(default)]
    strides: Vec<u64>,
    #[serde(rename = "box")]
    box_dims: Vec<u32>,
    #[serde(default)]
    element_strides: Vec<u32>,
    #[serde(default)]
    swizzle: u32,
    #[serde(default)]
    nan_fill: bool,
}

struct Binder<'a> {
    folder: &'a Path,
    memory: Memory,
    outputs: Vec<(BufferId, PathBuf)>,
    known: BTreeMap<String, (BufferId, Mode)>,
}

impl Binder<'_> {
    fn buffer(&mut self, name: &str, mode: Mode, bytes: Option<u64>) -> Result<BufferId, SpecError> {
        if let Some((id, old)) = self.known.get(name) {
            return if *old == mode {
                Ok(*id)
            } else {
                Err(SpecError::Spec(format!("buffer `{name}` is given with two modes")))
            };
        }
        let path = self.folder.join(name);
        if bytes.is_some_and(|b| b > MAX_BUFFER) {
            return Err(SpecError::Spec(format!("buffer `{name}` is larger than {MAX_BUFFER} bytes")));
        }
        let data = match (mode, bytes) {
            (Mode::Out, Some(n)) => vec![0; n as usize],
            _ => std::fs::read(&path).map_err(|e| SpecError::File(format!("{}: {e}", path.display())))?,
        };
        if let Some(n) = bytes
            && n != data.len() as u64
        {
            return Err(SpecError::Spec(format!("buffer `{name}` has {} bytes, {n} stated", data.len())));
        }
        let access = match mode {
            Mode::In => Access::In,
            Mode::Out => Access::Out,
            Mode::InOut => Access::InOut,
        };
        let id = self.memory.add(name, &data, access);
        if mode != Mode::In {
            self.outputs.push((id, path));
        }
        self.known.insert(name.into(), (id, mode));
        Ok(id)
    }

    fn arg(&mut self, k: usize, raw: RawArg) -> Result<Arg, SpecError> {
        let RawArg { buffer, mode, bytes, offset, u32, i32, u64, i64, f32, f64, tensor_map } = raw;
        let of_buffer = mode.is_some() || bytes.is_some() || offset.is_some();
        let mut found = Vec::new();
        found.extend(u32.map(Arg::U32));
        found.extend(i32.map(Arg::I32));
        found.extend(u64.map(Arg::U64));
        found.extend(i64.map(Arg::I64));
        found.extend(f32.map(|v| Arg::F32(v as f32)));
        found.extend(f64.map(Arg::F64));
        let wrong = |m: &str| Err(SpecError::Spec(format!("argument {k}: {m}")));
        if of_buffer && buffer.is_none() {
            return wrong("`mode`, `bytes` and `offset` belong to a `buffer`");
        }
        if let Some(name) = buffer {
            let Some(mode) = mode else { return wrong("a buffer needs a `mode`: in, out or inout") };
            let id = self.buffer(&name, mode, bytes)?;
            found.push(Arg::Buffer { id, offset: offset.unwrap_or(0) });
        }
        if let Some(m) = tensor_map {
            let id = self.buffer(&m.buffer, m.mode, m.bytes)?;
            found.push(Arg::Map(TensorMap {
                ty: m.ty,
                base: self.memory.address(id, 0),
                dims: m.dims,
                strides: m.strides,
                box_dims: m.box_dims,
                element_strides: m.element_strides,
                swizzle: m.swizzle,
                nan_fill: m.nan_fill,
            }));
        }
        match (found.pop(), found.is_empty()) {
            (Some(a), true) => Ok(a),
            (None, _) => wrong("no value; give one of buffer, u32, i32, u64, i64, f32, f64, tensor_map"),
            _ => wrong("more than one value"),
        }
    }
}

/// Reads a specification and its buffers, whose names are relative to `folder`.
pub(super) fn bind(text: &str, folder: &Path) -> Result<Bound, SpecError> {
    let spec: Spec = serde_json::from_str(text).map_err(|e| SpecError::Spec(e.to_string()))?;
    let mut b = Binder { folder, memory: Memory::new(), outputs: Vec::new(), known: BTreeMap::new() };
    let args = spec.args.into_iter().enumerate().map(|(k, a)| b.arg(k, a)).collect::<Result<Vec<_>, _>>()?;
    Ok(Bound { memory: b.memory, args, outputs: b.outputs })
}
