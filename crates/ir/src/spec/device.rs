//! Device records: what plans are costed against, as YAML with units and sources.
//!
//! Every quantity is `{value: NUMBER, unit: UNIT, source: TEXT}`. The unit is fixed; it is written so that a wrong one is an
//! error and not a plan. Every key must be given, and there are no others.

use super::fields::{Fields, text};
use super::help::with_help;
use super::yaml::{Node, Value, parse};
use crate::diag::{Diagnostic, Diagnostics, SourceMap, codes};

/// What plans are costed against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Target architecture, such as `sm_90a`.
    pub arch: String,
    /// Multiprocessors.
    pub multiprocessors: u64,
    /// Device memory, bytes.
    pub memory: u64,
    /// Memory bandwidth, bytes a second.
    pub bandwidth: u64,
    /// Products of 16-bit and narrower operands, operations a second.
    pub flops_16: u64,
    /// f32 operations a second.
    pub flops_32: u64,
    /// f64 operations a second.
    pub flops_64: u64,
    /// Time of an empty kernel, picoseconds.
    pub launch_ps: u64,
    /// Picoseconds a run must save for every MiB that stays resident for it.
    pub resident_ps_per_mib: u64,
}

impl Device {
    /// The record in a YAML text; `name` is the file's name in messages.
    ///
    /// # Errors
    /// Everything that is wrong with the text, with the text itself for showing it.
    #[allow(clippy::result_large_err)] // There is one of them in a run.
    pub fn from_yaml(name: &str, yaml: &str) -> Result<Device, (SourceMap, Diagnostics)> {
        let (mut sources, mut diags) = (SourceMap::default(), Diagnostics::default());
        let file = sources.add(name, yaml);
        let device = parse(file, &sources, &mut diags).and_then(|root| device(&root, &mut diags));
        match device {
            Some(device) if !diags.has_errors() => Ok(device),
            _ => {
                let mut out = Diagnostics::default();
                diags.into_sorted().into_iter().for_each(|d| out.push(with_help(d)));
                Err((sources, out))
            }
        }
    }
}

fn device(root: &Node, diags: &mut Diagnostics) -> Option<Device> {
    let mut f = Fields::open("a device record", root, diags)?;
    let word = |f: &mut Fields, key: &'static str, diags: &mut Diagnostics| {
        let entry = f.require(key, diags)?;
        let word = text(key, &entry.value, diags)?.to_owned();
        if word.trim().is_empty() {
            let message = format!("`{key}` is empty");
            diags.push(Diagnostic::error(codes::BAD_ATTRIBUTE, entry.value.span, message).help("write a word"));
        }
        Some(word)
    };
    let name = word(&mut f, "device", diags);
    word(&mut f, "doc", diags);
    let arch = word(&mut f, "arch", diags);
    let mut number = |key: &'static str, unit: &str, scale: f64| {
        f.require(key, diags).and_then(|e| quantity(key, unit, scale, &e.value, diags))
    };
    let multiprocessors = number("multiprocessors", "1", 1.0);
    let memory = number("memory", "MiB", (1u64 << 20) as f64);
    let bandwidth = number("bandwidth", "B/s", 1.0);
    let flops_16 = number("flops_16", "flop/s", 1.0);
    let flops_32 = number("flops_32", "flop/s", 1.0);
    let flops_64 = number("flops_64", "flop/s", 1.0);
    let launch_ps = number("launch", "s", 1e12);
    let resident_ps_per_mib = number("resident", "s/MiB", 1e12);
    f.finish(diags);
    Some(Device {
        name: name?,
        arch: arch?,
        multiprocessors: multiprocessors?,
        memory: memory?,
        bandwidth: bandwidth?,
        flops_16: flops_16?,
        flops_32: flops_32?,
        flops_64: flops_64?,
        launch_ps: launch_ps?,
        resident_ps_per_mib: resident_ps_per_mib?,
    })
}

/// A quantity in its unit times `scale`, rounded to the nearest integer, which must be positive.
fn quantity(key: &'static str, unit: &str, scale: f64, node: &Node, diags: &mut Diagnostics) -> Option<u64> {
    if !matches!(node.value, Value::Map(_)) {
        let found = node.value.describe();
        diags.push(
            Diagnostic::error(codes::YAML_SHAPE, node.span, format!("`{key}` is a quantity, this is {found}"))
                .help(format!("{key}: {{value: 1, unit: {unit}, source: data sheet}}")),
        );
        return None;
    }
    let mut f = Fields::open("a quantity", node, diags)?;
    let value = f.require("value", diags);
    let given = f.require("unit", diags);
    let source = f.require("source", diags);
    f.finish(diags);
    text("a source", &source?.value, diags)?;
    let given = given?;
    // A unit of one is a YAML integer.
    let spelled = match &given.value.value {
        Value::Int(v) => v.to_string(),
        _ => text("a unit", &given.value, diags)?.to_owned(),
    };
    if spelled != unit {
        let message = format!("`{key}` is given in {unit}, not in {spelled}");
        diags.push(Diagnostic::error(codes::BAD_ATTRIBUTE, given.value.span, message).help(format!("unit: {unit}")));
        return None;
    }
    let value = value?;
    let number = match value.value.value {
        Value::Int(v) => v as f64,
        Value::Float(v) => v,
        ref other => {
            let message = format!("the value of `{key}` is a number, this is {}", other.describe());
            diags.push(Diagnostic::error(codes::YAML_SHAPE, value.value.span, message).help("value: 4.8e12"));
            return None;
        }
    };
    let scaled = (number * scale).round();
    let counted = unit == "1" && number.fract() != 0.0;
    if !(1.0..9e18).contains(&scaled) || counted {
        let message = format!("{number:e} is no possible value of `{key}`");
        let help = if unit == "1" {
            "give a whole number, at least 1".to_owned()
        } else {
            format!("give a number of {unit} from {:e} to {:e}", 1.0 / scale, 9e18 / scale)
        };
        diags.push(Diagnostic::error(codes::BAD_ATTRIBUTE, value.value.span, message).help(help));
        return None;
    }
    Some(scaled as u64)
}
