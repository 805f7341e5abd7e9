//! Functions, ops, values and regions.

use super::attr::{Attr, Attrs, Keep};
use crate::diag::Span;
use crate::ops::Opcode;
use crate::ty::{DType, Dim, TensorType, Type};
use std::sync::Arc;

id!(
    /// An op of a function.
    OpId
);
id!(
    /// A value of a function.
    ValueId
);
id!(
    /// A region of a function.
    RegionId
);

/// Where an op comes from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Loc {
    /// Dotted node path in the spec, such as `layers.mixed.qr`; loop indices are not part of it.
    pub path: Arc<str>,
    /// The expression in the YAML file.
    pub span: Option<Span>,
}

/// What defines a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// A result of an op.
    Result(OpId, u32),
    /// A parameter of a region (function inputs are the parameters of the body).
    Param(RegionId, u32),
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its type.
    pub ty: Type,
    /// Its definition.
    pub def: ValueDef,
    /// The node paths that name this value (`layers.h`), in the order they were seen; a value without a name is an
    /// intermediate of an expression.
    pub names: Vec<Arc<str>>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// What it does.
    pub code: Opcode,
    /// Attributes; exactly those the registry lists for `code`.
    pub attrs: Attrs,
    /// Operands in registry order; optional trailing operands may be missing.
    pub operands: Vec<ValueId>,
    /// Results.
    pub results: Vec<ValueId>,
    /// Regions of `loop` (one) and `cases` (one a case).
    pub regions: Vec<RegionId>,
    /// Provenance.
    pub loc: Loc,
}

impl Op {
    /// Integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attrs.get(name) {
            Some(Attr::Int(v)) => Some(*v),
            _ => None,
        }
    }

    /// Real attribute.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.attrs.get(name) {
            Some(Attr::Float(v)) => Some(*v),
            _ => None,
        }
    }

    /// Truth-value attribute.
    pub fn bool(&self, name: &str) -> Option<bool> {
        match self.attrs.get(name) {
            Some(Attr::Bool(v)) => Some(*v),
            _ => None,
        }
    }

    /// Text attribute.
    pub fn str(&self, name: &str) -> Option<&str> {
        match self.attrs.get(name) {
            Some(Attr::Str(v)) => Some(v),
            _ => None,
        }
    }

    /// Dim attribute.
    pub fn dim(&self, name: &str) -> Option<&Dim> {
        match self.attrs.get(name) {
            Some(Attr::Dim(v)) => Some(v),
            _ => None,
        }
    }

    /// Dims attribute.
    pub fn dims(&self, name: &str) -> Option<&[Dim]> {
        match self.attrs.get(name) {
            Some(Attr::Dims(v)) => Some(v),
            _ => None,
        }
    }

    /// Integer-list attribute.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attrs.get(name) {
            Some(Attr::Ints(v)) => Some(v),
            _ => None,
        }
    }

    /// Dtype attribute.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.attrs.get(name) {
            Some(Attr::DType(v)) => Some(*v),
            _ => None,
        }
    }

    /// Kept values of a loop.
    pub fn keeps(&self) -> &[Keep] {
        match self.attrs.get("keep") {
            Some(Attr::Keeps(v)) => v,
            _ => &[],
        }
    }
}

/// A straight list of ops with parameters and yielded values.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Region {
    /// Parameters.
    pub params: Vec<ValueId>,
    /// Ops in execution order.
    pub ops: Vec<OpId>,
    /// Values handed to the enclosing op or, for the body of a function, its results.
    pub yields: Vec<ValueId>,
}

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct Func {
    /// Name, unique in the module.
    pub name: String,
    /// Names of the parameters of the body.
    pub inputs: Vec<String>,
    /// Names of the yields of the body.
    pub outputs: Vec<String>,
    /// The body.
    pub body: RegionId,
    /// Ops by id.
    pub ops: Vec<Op>,
    /// Values by id.
    pub values: Vec<Value>,
    /// Regions by id.
    pub regions: Vec<Region>,
}

impl Func {
    /// An empty function.
    pub fn new(name: impl Into<String>) -> Self {
        Func {
            name: name.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            body: RegionId(0),
            ops: Vec::new(),
            values: Vec::new(),
            regions: vec![Region::default()],
        }
    }

    /// The op behind an id.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.index()]
    }

    /// The value behind an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &Type {
        &self.values[id.index()].ty
    }

    /// The tensor type of a value.
    pub fn tensor(&self, id: ValueId) -> Option<&TensorType> {
        self.ty(id).tensor()
    }

    /// The region behind an id.
    pub fn region(&self, id: RegionId) -> &Region {
        &self.regions[id.index()]
    }

    /// Adds an empty region.
    pub fn add_region(&mut self) -> RegionId {
        self.regions.push(Region::default());
        RegionId(self.regions.len() as u32 - 1)
    }

    /// Adds a parameter to a region.
    pub fn add_param(&mut self, region: RegionId, ty: Type) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        let index = self.regions[region.index()].params.len() as u32;
        self.values.push(Value { ty, def: ValueDef::Param(region, index), names: Vec::new() });
        self.regions[region.index()].params.push(id);
        id
    }

    /// Adds an op with results of the given types at the end of `region` and returns its id.
    #[allow(clippy::too_many_arguments)]
    pub fn add_op(
        &mut self,
        region: RegionId,
        code: Opcode,
        operands: Vec<ValueId>,
        attrs: Attrs,
        regions: Vec<RegionId>,
        types: Vec<Type>,
        loc: Loc,
    ) -> OpId {
        let id = OpId(self.ops.len() as u32);
        let results = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                let v = ValueId(self.values.len() as u32);
                self.values.push(Value { ty, def: ValueDef::Result(id, i as u32), names: Vec::new() });
                v
            })
            .collect();
        self.ops.push(Op { code, attrs, operands, results, regions, loc });
        self.regions[region.index()].ops.push(id);
        id
    }
}
