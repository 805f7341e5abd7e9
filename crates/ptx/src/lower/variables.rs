//! Variables of the module and of bodies, and the kernel's parameters: where they are and what they hold at the start.

use super::builder::{Builder, GLOBAL_VAR_WINDOW, Result};
use super::scope::Sym;
use super::{GlobalVar, Param};
use crate::error::Diagnostic;
use crate::memory::window_base;
use crate::syntax::ast::{Constant, Function, Init, Item, Space, Stmt, StmtKind, Type, Variable};

/// Bytes of one module variable beyond which it is refused; tables of real kernels are far smaller.
const MAX_VARIABLE: u64 = 64 << 20;

impl Builder<'_> {
    /// Places module variables and the kernel's parameters.
    pub(super) fn globals(&mut self, f: &Function) -> Result<()> {
        let module = self.module;
        let variables = module.items.iter().filter_map(|i| if let Item::Variable(v) = i { Some(v) } else { None });
        let mut later = Vec::new();
        for v in variables {
            if v.space == Space::Shared {
                if v.size() > 0 {
                    self.place_shared(v)?;
                }
                continue;
            }
            let n = self.prog.globals.len();
            let address = window_base(GLOBAL_VAR_WINDOW + n as u64);
            if v.size() > MAX_VARIABLE {
                return Err(Diagnostic::unsupported(
                    v.at.0,
                    format!("variable `{}` is larger than {MAX_VARIABLE} bytes", v.name),
                ));
            }
            self.scopes[0].define(&v.name, Sym::Global(address));
            self.prog.globals.push(GlobalVar {
                name: v.name.clone(),
                bytes: vec![0; v.size() as usize],
                constant: v.space == Space::Const,
            });
            later.push((n, v));
        }
        for (n, v) in later {
            if let Some(init) = &v.init {
                let mut bytes = Vec::new();
                self.init_bytes(init, v, &mut bytes)?;
                let var = &mut self.prog.globals[n];
                let open = v.dims.first() == Some(&None);
                if bytes.len() > var.bytes.len() && !open {
                    let message =
                        format!("`{}` has {} bytes, its initial value {}", v.name, var.bytes.len(), bytes.len());
                    return Err(Diagnostic::resolve(v.at.0, message));
                }
                if bytes.len() > var.bytes.len() {
                    var.bytes.resize(bytes.len(), 0);
                }
                var.bytes[..bytes.len()].copy_from_slice(&bytes);
            }
        }
        let mut offset = 0u64;
        for p in &f.params {
            offset = offset.next_multiple_of(p.alignment());
            if self.prog.params.iter().any(|q| q.name == p.name) {
                return Err(Diagnostic::resolve(p.at.0, format!("parameter `{}` is declared twice", p.name)));
            }
            self.scopes[0].define(&p.name, Sym::Param(offset));
            self.prog.params.push(Param { name: p.name.clone(), offset, size: p.size() });
            offset = offset.saturating_add(p.size());
            if offset > 32764 {
                return Err(Diagnostic::resolve(p.at.0, "parameters exceed 32764 bytes"));
            }
        }
        self.prog.param_bytes = offset as usize;
        self.prog.files = module
            .items
            .iter()
            .filter_map(|i| if let Item::File { index, path, .. } = i { Some((*index, path.clone())) } else { None })
            .collect();
        Ok(())
    }

    fn init_bytes(&self, init: &Init, v: &Variable, out: &mut Vec<u8>) -> Result<()> {
        let size = v.ty.size() as usize;
        let value = match init {
            Init::List(l) => return l.iter().try_for_each(|x| self.init_bytes(x, v, out)),
            Init::Value(Constant::Int(i)) if v.ty == Type::F32 => u64::from((*i as f32).to_bits()),
            Init::Value(Constant::Int(i)) if v.ty == Type::F64 => (*i as f64).to_bits(),
            Init::Value(Constant::Int(i)) => *i as u64,
            Init::Value(Constant::F32(b)) if v.ty == Type::F64 => f64::from(f32::from_bits(*b)).to_bits(),
            Init::Value(Constant::F32(b)) => u64::from(*b),
            Init::Value(Constant::F64(b)) if size == 4 => u64::from((f64::from_bits(*b) as f32).to_bits()),
            Init::Value(Constant::F64(b)) => *b,
            Init::Symbol { name, offset, .. } => match self.scopes[0].syms.get(name) {
                Some(Sym::Global(a)) => a.wrapping_add(*offset as u64),
                _ => {
                    return Err(Diagnostic::unsupported(
                        v.at.0,
                        format!("initial value of `{}` uses `{name}`, which is not a global variable", v.name),
                    ));
                }
            },
        };
        out.extend_from_slice(&value.to_le_bytes()[..size.min(8)]);
        Ok(())
    }

    fn place_shared(&mut self, v: &Variable) -> Result<u64> {
        let offset = (self.prog.static_shared as u64).next_multiple_of(v.alignment());
        let end = offset.saturating_add(v.size());
        if end > 1 << 20 {
            return Err(Diagnostic::resolve(v.at.0, format!("`{}` does not fit shared memory", v.name)));
        }
        self.prog.static_shared = end as usize;
        self.prog.shared_vars.push((v.name.clone(), offset, v.size()));
        self.scopes[0].define(&v.name, Sym::Shared(offset));
        Ok(offset)
    }

    /// Shared variables of bodies live as long as the block: they are placed before the dynamic part.
    pub(super) fn scan_shared(&mut self, body: &[Stmt]) -> Result<()> {
        for s in body {
            match &s.kind {
                StmtKind::Block(b) => self.scan_shared(b)?,
                StmtKind::Variable(v) if v.space == Space::Shared && v.size() > 0 => {
                    self.place_shared(v)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn variable(&mut self, v: &Variable) -> Result<()> {
        match v.space {
            // Placed before; a scope's own name hides outer ones.
            Space::Shared => {
                if let Some(sym) = self.scopes[0].syms.get(&v.name).cloned()
                    && let Some(scope) = self.scopes.last_mut()
                {
                    scope.define(&v.name, sym);
                }
                Ok(())
            }
            Space::Local | Space::Param => {
                let offset = self.local_slot(v)?;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.define(&v.name, Sym::Local(offset));
                }
                Ok(())
            }
            s => Err(Diagnostic::unsupported(
                v.at.0,
                format!("`{}` variables inside a body are not supported", s.text()),
            )),
        }
    }

    /// Reserves space in the lane's local frame.
    pub(super) fn local_slot(&mut self, v: &Variable) -> Result<u64> {
        let offset = (self.prog.frame as u64).next_multiple_of(v.alignment());
        let end = offset.saturating_add(v.size());
        if end > 512 << 10 {
            return Err(Diagnostic::resolve(v.at.0, "local memory exceeds 512 KiB a thread"));
        }
        self.prog.frame = end as usize;
        Ok(offset)
    }
}
