//! The device library's print and assertion.

use super::access::By;
use super::gang::{Gang, Run};
use super::inst::{Inst, Space};
use super::regs::LANES;
use crate::check::FindingKind;

/// Bytes of a string or of a launch's output beyond which text is cut.
const MAX_TEXT: usize = 1 << 16;

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    fn c_string(&mut self, by: By, mut address: u64) -> Run<String> {
        let mut out = Vec::new();
        while out.len() < MAX_TEXT {
            let place = self.resolve(by, Space::Generic, address, 1, 1, false)?;
            let mut b = [0];
            self.read_place(by, place, &mut b);
            if b[0] == 0 {
                break;
            }
            out.push(b[0]);
            address += 1;
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    pub(super) fn printf(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let (format, args) = (self.warps[w].regs.d[i.a as usize].0[l], self.warps[w].regs.d[i.b as usize].0[l]);
            let text = self.c_string(by, format)?;
            let line = self.format(by, &text, args)?;
            let cta = self.ctas[self.warps[w].cta].linear;
            match self.output.last_mut() {
                Some((c, s)) if *c == cta => {
                    if s.len() < MAX_TEXT {
                        s.push_str(&line);
                    }
                }
                _ => self.output.push((cta, line)),
            }
        }
        Ok(())
    }

    /// Expands a format: each value lies at the next multiple of its size, floats as doubles.
    fn format(&mut self, by: By, text: &str, mut args: u64) -> Run<String> {
        let mut out = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut spec = String::new();
            while let Some(&n) = chars.peek() {
                if n.is_ascii_digit() || "-+ #.*hlzjt".contains(n) {
                    spec.push(n);
                    chars.next();
                } else {
                    break;
                }
            }
            let Some(conversion) = chars.next() else { break };
            if conversion == '%' {
                out.push('%');
                continue;
            }
            let long = spec.contains(['l', 'z', 'j', 't']);
            let wide = long || "aAeEfFgGps".contains(conversion);
            let n = if wide { 8 } else { 4 };
            args = args.next_multiple_of(n);
            let place = self.resolve(by, Space::Generic, args, n as usize, 1, false)?;
            let mut raw = [0; 8];
            self.read_place(by, place, &mut raw[..n as usize]);
            args += n;
            let v = u64::from_le_bytes(raw);
            let precision = spec
                .split_once('.')
                .and_then(|(_, p)| p.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<usize>().ok());
            let body = match conversion {
                'd' | 'i' if wide => (v as i64).to_string(),
                'd' | 'i' => (v as u32 as i32).to_string(),
                'u' => v.to_string(),
                'x' => format!("{v:x}"),
                'X' => format!("{v:X}"),
                'o' => format!("{v:o}"),
                'c' => char::from(v as u8).to_string(),
                'p' => format!("{v:#x}"),
                's' => self.c_string(by, v)?,
                'f' | 'F' => format!("{:.*}", precision.unwrap_or(6).min(64), f64::from_bits(v)),
                'e' | 'E' => format!("{:.*e}", precision.unwrap_or(6).min(64), f64::from_bits(v)),
                'g' | 'G' | 'a' | 'A' => f64::from_bits(v).to_string(),
                other => format!("%{spec}{other}"),
            };
            let flags = spec.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let width = flags.split('.').next().unwrap_or("").trim_start_matches(['+', ' ', '#']);
            let left = width.starts_with('-');
            let zero = width.starts_with('0');
            let columns = width.trim_start_matches('-').parse::<usize>().unwrap_or(0).min(256);
            out.push_str(&match (left, zero && !left) {
                (true, _) => format!("{body:<columns$}"),
                (false, true) => format!("{body:0>columns$}"),
                (false, false) => format!("{body:>columns$}"),
            });
        }
        Ok(out)
    }

    pub(super) fn assert_fail(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let l = m.trailing_zeros() as usize & 31;
        let by = By { w, pc, lane: l };
        let (message, file) = (self.warps[w].regs.d[i.a as usize].0[l], self.warps[w].regs.d[i.b as usize].0[l]);
        let text = self.c_string(by, message)?;
        let file = self.c_string(by, file)?;
        self.fault(w, pc, l, FindingKind::Trap, || format!("assertion `{text}` failed in {file}"))
    }
}
