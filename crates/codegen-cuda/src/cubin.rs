//! Reading resources back from a cubin (an ELF file).

use std::collections::BTreeMap;

/// Resources of one kernel as its cubin states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CubinKernel {
    /// Entry name.
    pub name: String,
    /// Registers a thread.
    pub registers: u32,
    /// Shared memory in bytes, including what the architecture reserves.
    pub shared_bytes: u64,
    /// Stack frame in bytes.
    pub frame_bytes: u32,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Bytes of the parameter block.
    pub param_bytes: u32,
}

/// Why bytes are not a readable cubin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CubinError {
    /// No 64-bit little-endian ELF header.
    #[error("not a 64-bit little-endian ELF file")]
    NotElf,
    /// A table points outside the file.
    #[error("the file is truncated or damaged")]
    Damaged,
}

/// Attribute codes of `.nv.info` sections.
const FRAME_SIZE: u8 = 0x11;
const REGISTER_COUNT: u8 = 0x2f;
const PARAM_BYTES: u8 = 0x19;
/// Attribute formats: a value in the record itself, or a size and a payload.
const FORMAT_PAYLOAD: u8 = 4;

fn bytes(data: &[u8], at: u64, n: u64) -> Result<&[u8], CubinError> {
    let end = at.checked_add(n).ok_or(CubinError::Damaged)?;
    data.get(at as usize..end as usize).ok_or(CubinError::Damaged)
}

fn number(data: &[u8], at: u64, n: u64) -> Result<u64, CubinError> {
    Ok(bytes(data, at, n)?.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
}

fn text(data: &[u8], at: u64) -> Result<String, CubinError> {
    let tail = data.get(at as usize..).ok_or(CubinError::Damaged)?;
    let end = tail.iter().position(|b| *b == 0).ok_or(CubinError::Damaged)?;
    Ok(String::from_utf8_lossy(&tail[..end]).into_owned())
}

struct Section {
    name: String,
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

fn sections(data: &[u8]) -> Result<Vec<Section>, CubinError> {
    if data.len() < 64 || data[..6] != [0x7f, b'E', b'L', b'F', 2, 1] {
        return Err(CubinError::NotElf);
    }
    let table = number(data, 40, 8)?;
    let (entry, count, names) = (number(data, 58, 2)?, number(data, 60, 2)?, number(data, 62, 2)?);
    let at = |k: u64| table.checked_add(k * entry).ok_or(CubinError::Damaged);
    if names >= count {
        return Err(CubinError::Damaged);
    }
    let strings = number(data, at(names)? + 24, 8)?;
    (0..count)
        .map(|k| {
            let h = at(k)?;
            let name = strings.checked_add(number(data, h, 4)?).ok_or(CubinError::Damaged)?;
            Ok(Section {
                name: text(data, name)?,
                kind: number(data, h + 4, 4)? as u32,
                offset: number(data, h + 24, 8)?,
                size: number(data, h + 32, 8)?,
                link: number(data, h + 40, 4)? as u32,
            })
        })
        .collect()
}

/// Records of a `.nv.info` section: attribute and payload.
fn attributes(data: &[u8], s: &Section) -> Result<Vec<(u8, Vec<u8>)>, CubinError> {
    let raw = bytes(data, s.offset, s.size)?;
    let (mut at, mut out) = (0u64, Vec::new());
    while at + 4 <= s.size {
        let (format, attribute) = (raw[at as usize], raw[at as usize + 1]);
        let value = number(raw, at + 2, 2)?;
        at += 4;
        if format == FORMAT_PAYLOAD {
            out.push((attribute, bytes(raw, at, value)?.to_vec()));
            at += value;
        } else {
            out.push((attribute, (value as u16).to_le_bytes().to_vec()));
        }
    }
    Ok(out)
}

/// The kernels of a cubin, by name.
///
/// # Errors
/// Bytes that are not a cubin.
pub fn read_cubin(data: &[u8]) -> Result<Vec<CubinKernel>, CubinError> {
    const NO_BITS: u32 = 8;
    let list = sections(data)?;
    let mut kernels: BTreeMap<String, CubinKernel> = BTreeMap::new();
    for s in &list {
        if let Some(name) = s.name.strip_prefix(".text.") {
            let k = kernels.entry(name.into()).or_default();
            k.name = name.into();
            k.code_bytes = s.size;
        }
    }
    for s in &list {
        if let Some(k) = s.name.strip_prefix(".nv.shared.").and_then(|n| kernels.get_mut(n)) {
            k.shared_bytes = s.size;
        }
        if let Some(k) = s.name.strip_prefix(".nv.info.").and_then(|n| kernels.get_mut(n)) {
            for (a, v) in attributes(data, s)? {
                if a == PARAM_BYTES {
                    k.param_bytes = number(&v, 0, 2)? as u32;
                }
            }
        }
    }
    // Per-kernel values of the module-wide section name their kernel by symbol.
    let symbols = list.iter().find(|s| s.name == ".symtab");
    let info = list.iter().find(|s| s.name == ".nv.info" && s.kind != NO_BITS);
    if let (Some(symbols), Some(info)) = (symbols, info) {
        let strings = list.get(symbols.link as usize).ok_or(CubinError::Damaged)?;
        for (a, v) in attributes(data, info)? {
            if v.len() < 8 || !matches!(a, FRAME_SIZE | REGISTER_COUNT) {
                continue;
            }
            let symbol = symbols.offset + 24 * number(&v, 0, 4)?;
            let name = text(data, strings.offset + number(data, symbol, 4)?)?;
            let value = number(&v, 4, 4)? as u32;
            if let Some(k) = kernels.get_mut(&name) {
                if a == REGISTER_COUNT {
                    k.registers = value;
                } else {
                    k.frame_bytes = value;
                }
            }
        }
    }
    Ok(kernels.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_other_bytes() {
        assert_eq!(read_cubin(b"hello"), Err(CubinError::NotElf));
        let mut head = vec![0x7f, b'E', b'L', b'F', 2, 1];
        head.resize(64, 0xff);
        assert_eq!(read_cubin(&head), Err(CubinError::Damaged));
    }
}
