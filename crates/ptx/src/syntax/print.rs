//! Printing a syntax tree back to PTX.

use super::ast::*;
use std::fmt::{self, Display, Formatter, Write};

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.version != (0, 0) {
            writeln!(f, ".version {}.{}", self.version.0, self.version.1)?;
        }
        if !self.target.is_empty() {
            writeln!(f, ".target {}", self.target.join(", "))?;
        }
        writeln!(f, ".address_size {}", self.address_size)?;
        for item in &self.items {
            match item {
                Item::File { index, path, extra } => {
                    write!(f, ".file {index} \"{path}\"")?;
                    extra.iter().try_for_each(|v| write!(f, ", {v}"))?;
                    writeln!(f)?;
                }
                Item::Variable(v) => writeln!(f, "{v};")?,
                Item::Function(x) => x.fmt(f)?,
                Item::Section { name, raw } => writeln!(f, ".section {name}\n{{{raw}}}")?,
                Item::Pragma(s) => writeln!(f, ".pragma \"{s}\";")?,
            }
        }
        Ok(())
    }
}

impl Display for Linkage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Internal => "",
            Self::Extern => ".extern ",
            Self::Visible => ".visible ",
            Self::Weak => ".weak ",
            Self::Common => ".common ",
        })
    }
}

impl Display for Variable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.linkage, self.space.text())?;
        if let Some(a) = self.align {
            write!(f, " .align {a}")?;
        }
        if let Some(v) = self.vector {
            write!(f, " .v{v}")?;
        }
        write!(f, " .{}", self.ty.name())?;
        if let Some(p) = self.pointer {
            f.write_str(" .ptr")?;
            if let Some(s) = p.space {
                write!(f, " {}", s.text())?;
            }
            if let Some(a) = p.align {
                write!(f, " .align {a}")?;
            }
        }
        write!(f, " {}", self.name)?;
        for d in &self.dims {
            match d {
                Some(n) => write!(f, "[{n}]")?,
                None => f.write_str("[]")?,
            }
        }
        if let Some(i) = &self.init {
            write!(f, " = {i}")?;
        }
        Ok(())
    }
}

impl Display for Init {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(c) => c.fmt(f),
            Self::Symbol { name, offset, generic } => {
                if *generic {
                    write!(f, "generic({name})")?;
                } else {
                    f.write_str(name)?;
                }
                offset_text(f, *offset)
            }
            Self::List(l) => {
                f.write_char('{')?;
                separated(f, l)?;
                f.write_char('}')
            }
        }
    }
}

impl Display for Constant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(v) => write!(f, "{v}"),
            Self::F32(b) => write!(f, "0f{b:08X}"),
            Self::F64(b) => write!(f, "0d{b:016X}"),
        }
    }
}

fn offset_text(f: &mut Formatter<'_>, offset: i64) -> fmt::Result {
    match offset {
        0 => Ok(()),
        o if o > 0 => write!(f, "+{o}"),
        o => write!(f, "+-{}", o.unsigned_abs()),
    }
}

fn separated<T: Display>(f: &mut Formatter<'_>, list: &[T]) -> fmt::Result {
    for (i, x) in list.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        x.fmt(f)?;
    }
    Ok(())
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ", self.linkage, if self.entry { ".entry" } else { ".func" })?;
        if !self.results.is_empty() {
            f.write_char('(')?;
            separated(f, &self.results)?;
            f.write_str(") ")?;
        }
        write!(f, "{}(", self.name)?;
        separated(f, &self.params)?;
        f.write_char(')')?;
        for d in &self.directives {
            write!(f, "\n{}", d.name)?;
            if let Some(t) = &d.text {
                write!(f, " \"{t}\";")?;
            }
            if !d.values.is_empty() {
                f.write_char(' ')?;
                separated(f, &d.values)?;
            }
        }
        match &self.body {
            None => writeln!(f, ";"),
            Some(b) => {
                f.write_str("\n{\n")?;
                block(f, b, 1)?;
                f.write_str("}\n")
            }
        }
    }
}

fn block(f: &mut Formatter<'_>, body: &[Stmt], depth: usize) -> fmt::Result {
    for s in body {
        match &s.kind {
            StmtKind::Label(_) => {}
            _ => (0..depth).try_for_each(|_| f.write_char('\t'))?,
        }
        match &s.kind {
            StmtKind::Block(b) => {
                f.write_str("{\n")?;
                block(f, b, depth + 1)?;
                (0..depth).try_for_each(|_| f.write_char('\t'))?;
                f.write_str("}\n")?;
            }
            kind => writeln!(f, "{kind}")?,
        }
    }
    Ok(())
}

impl Display for StmtKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(b) => {
                f.write_str("{\n")?;
                block(f, b, 1)?;
                f.write_char('}')
            }
            Self::Label(l) => write!(f, "{l}:"),
            Self::Registers { ty, vector, names } => {
                f.write_str(".reg ")?;
                if let Some(v) = vector {
                    write!(f, ".v{v} ")?;
                }
                write!(f, ".{} ", ty.name())?;
                for (i, (n, count)) in names.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    f.write_str(n)?;
                    if let Some(c) = count {
                        write!(f, "<{c}>")?;
                    }
                }
                f.write_char(';')
            }
            Self::Variable(v) => write!(f, "{v};"),
            Self::BranchTargets { name, targets } => write!(f, "{name}: .branchtargets {};", targets.join(", ")),
            Self::CallPrototype { name, words } => write!(f, "{name}: .callprototype {};", words.join(" ")),
            Self::Loc(l) => {
                write!(f, ".loc {} {} {}", l.file, l.line, l.column)?;
                if let Some(i) = &l.inlined {
                    write!(f, ", function_name {}", i.label)?;
                    if i.offset != 0 {
                        write!(f, "+{}", i.offset)?;
                    }
                    write!(f, ", inlined_at {} {} {}", i.at.0, i.at.1, i.at.2)?;
                }
                Ok(())
            }
            Self::Pragma(s) => write!(f, ".pragma \"{s}\";"),
            Self::Instruction(i) => i.fmt(f),
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some((p, negated)) = &self.guard {
            write!(f, "@{}{p} ", if *negated { "!" } else { "" })?;
        }
        f.write_str(&self.opcode)?;
        if !self.operands.is_empty() {
            f.write_char(' ')?;
            separated(f, &self.operands)?;
        }
        f.write_char(';')
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Name(n) => f.write_str(n),
            OperandKind::Const(c) => c.fmt(f),
            OperandKind::Offset(n, o) => {
                f.write_str(n)?;
                if *o == 0 { f.write_str("+0") } else { offset_text(f, *o) }
            }
            OperandKind::Vector(v) => {
                f.write_char('{')?;
                separated(f, v)?;
                f.write_char('}')
            }
            OperandKind::Address { base, offset, extra } => {
                write!(f, "[{base}")?;
                offset_text(f, *offset)?;
                extra.iter().try_for_each(|e| write!(f, ", {e}"))?;
                f.write_char(']')
            }
            OperandKind::Pair(a, b) => write!(f, "{a}|{b}"),
            OperandKind::Not(a) => write!(f, "!{a}"),
            OperandKind::Negate(a) => write!(f, "-{a}"),
            OperandKind::List(l) => {
                f.write_char('(')?;
                separated(f, l)?;
                f.write_char(')')
            }
        }
    }
}
