//! Syntax tree of a PTX module.
//!
//! Positions are carried for messages only: two trees are equal when their text means the same, wherever it stands.

use crate::error::Pos;

/// A position that never takes part in comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub struct At(pub Pos);

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A whole PTX file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// ISA version: major, minor.
    pub version: (u32, u32),
    /// `.target` words, the architecture first.
    pub target: Vec<String>,
    /// 32 or 64.
    pub address_size: u32,
    /// Everything else in order.
    pub items: Vec<Item>,
}

impl Module {
    /// Functions and entries that have a body, in order.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|i| match i {
            Item::Function(f) if f.body.is_some() => Some(f),
            _ => None,
        })
    }

    /// Names of the kernels, in order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.functions().filter(|f| f.entry).map(|f| f.name.as_str())
    }

    /// Path of a `.file` index.
    pub fn file(&self, index: u32) -> Option<&str> {
        self.items.iter().find_map(|i| match i {
            Item::File { index: n, path, .. } if *n == index => Some(path.as_str()),
            _ => None,
        })
    }
}

/// One thing at module level.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `.file index "path" [, timestamp, size]`.
    File {
        /// Number used by `.loc`.
        index: u32,
        /// Source path as the compiler wrote it.
        path: String,
        /// Optional time stamp and size.
        extra: Vec<u64>,
    },
    /// A variable of the module.
    Variable(Variable),
    /// An entry, function or declaration.
    Function(Function),
    /// A debug section, kept as text.
    Section {
        /// Name with its dot.
        name: String,
        /// Text between the braces.
        raw: String,
    },
    /// `.pragma "..."`.
    Pragma(String),
}

/// Linking directives in front of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// None.
    #[default]
    Internal,
    /// `.extern`.
    Extern,
    /// `.visible`.
    Visible,
    /// `.weak`.
    Weak,
    /// `.common`.
    Common,
}

/// State space of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// `.global`.
    Global,
    /// `.const`.
    Const,
    /// `.shared`.
    Shared,
    /// `.local`.
    Local,
    /// `.param`.
    Param,
    /// `.reg` (function parameters only).
    Reg,
}

impl Space {
    /// Directive text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Global => ".global",
            Self::Const => ".const",
            Self::Shared => ".shared",
            Self::Local => ".local",
            Self::Param => ".param",
            Self::Reg => ".reg",
        }
    }
}

/// Fundamental types of declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
}

impl Type {
    const NAMES: [(&'static str, Type); 20] = [
        ("pred", Type::Pred),
        ("b8", Type::B8),
        ("b16", Type::B16),
        ("b32", Type::B32),
        ("b64", Type::B64),
        ("b128", Type::B128),
        ("u8", Type::U8),
        ("u16", Type::U16),
        ("u32", Type::U32),
        ("u64", Type::U64),
        ("s8", Type::S8),
        ("s16", Type::S16),
        ("s32", Type::S32),
        ("s64", Type::S64),
        ("f16", Type::F16),
        ("f16x2", Type::F16x2),
        ("bf16", Type::BF16),
        ("bf16x2", Type::BF16x2),
        ("f32", Type::F32),
        ("f64", Type::F64),
    ];

    /// The type of a name without its dot.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, t)| *t)
    }

    /// Name without its dot.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, t)| *t == self).map_or("", |(n, _)| n)
    }

    /// Size in bytes; a predicate counts as one.
    pub fn size(self) -> u64 {
        match self {
            Self::Pred | Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::BF16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F16x2 | Self::BF16x2 | Self::F32 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// True for `.s8` to `.s64`.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// True for floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F16x2 | Self::BF16 | Self::BF16x2 | Self::F32 | Self::F64)
    }
}

/// `.ptr` attribute of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Space pointed into, if stated.
    pub space: Option<Space>,
    /// Alignment of the target, if stated.
    pub align: Option<u64>,
}

/// A variable or parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Linking directive.
    pub linkage: Linkage,
    /// State space.
    pub space: Space,
    /// `.align`, in bytes.
    pub align: Option<u64>,
    /// Element type.
    pub ty: Type,
    /// `.v2` or `.v4`.
    pub vector: Option<u8>,
    /// `.ptr` attribute.
    pub pointer: Option<Pointer>,
    /// Name.
    pub name: String,
    /// Array dimensions; `None` is an open `[]`.
    pub dims: Vec<Option<u64>>,
    /// Initial value.
    pub init: Option<Init>,
    /// Where the name stands.
    pub at: At,
}

impl Variable {
    /// Bytes of one element, vectors included.
    pub fn element_size(&self) -> u64 {
        self.ty.size() * u64::from(self.vector.unwrap_or(1))
    }

    /// Total bytes; open dimensions count as zero. Saturates instead of overflowing.
    pub fn size(&self) -> u64 {
        self.dims.iter().fold(self.element_size(), |n, d| n.saturating_mul(d.unwrap_or(0)))
    }

    /// Alignment in bytes.
    pub fn alignment(&self) -> u64 {
        self.align.unwrap_or(1).max(self.element_size())
    }
}

/// Initial value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// One constant.
    Value(Constant),
    /// Address of a symbol plus an offset, with `generic(...)` or without.
    Symbol {
        /// Name.
        name: String,
        /// Bytes added.
        offset: i64,
        /// Whether `generic()` surrounds the name.
        generic: bool,
    },
    /// `{ ... }`.
    List(Vec<Init>),
}

/// A literal; floats keep their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// Integer, two's complement.
    Int(i64),
    /// `0f` literal.
    F32(u32),
    /// `0d` or decimal literal.
    F64(u64),
}

/// An entry or a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Linking directive.
    pub linkage: Linkage,
    /// True for `.entry`.
    pub entry: bool,
    /// Name.
    pub name: String,
    /// Results of a `.func`.
    pub results: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// Performance directives between header and body.
    pub directives: Vec<Directive>,
    /// Statements; absent for a declaration.
    pub body: Option<Vec<Stmt>>,
    /// Where the name stands.
    pub at: At,
}

impl Function {
    /// Values of a directive such as `.maxntid`.
    pub fn directive(&self, name: &str) -> Option<&[u64]> {
        self.directives.iter().find(|d| d.name == name).map(|d| d.values.as_slice())
    }
}

/// `.maxntid 256, 1, 1` and the like.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// Name with its dot.
    pub name: String,
    /// Numbers after it.
    pub values: Vec<u64>,
    /// String after it (`.pragma`).
    pub text: Option<String>,
}

/// A statement with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where it starts.
    pub at: At,
}

/// Statements of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `{ ... }`: names inside are local.
    Block(Vec<Stmt>),
    /// `name:`.
    Label(String),
    /// `.reg .type a, b<10>;`.
    Registers {
        /// Type of all names.
        ty: Type,
        /// `.v2` or `.v4`.
        vector: Option<u8>,
        /// Names with an optional count.
        names: Vec<(String, Option<u32>)>,
    },
    /// A variable of the scope.
    Variable(Variable),
    /// `name: .branchtargets a, b;`.
    BranchTargets {
        /// Table name.
        name: String,
        /// Labels.
        targets: Vec<String>,
    },
    /// `name: .callprototype ...;`, kept as its words.
    CallPrototype {
        /// Prototype name.
        name: String,
        /// Words up to the semicolon.
        words: Vec<String>,
    },
    /// `.loc file line column`.
    Loc(Loc),
    /// `.pragma "...";`.
    Pragma(String),
    /// An instruction.
    Instruction(Instruction),
}

/// A source position of the following instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Loc {
    /// `.file` index.
    pub file: u32,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
    /// Function name label with offset, and the place it was inlined at.
    pub inlined: Option<Inlined>,
}

/// `, function_name label+offset, inlined_at file line column`.
#[derive(Clone, Debug, PartialEq)]
pub struct Inlined {
    /// Label in `.debug_str`.
    pub label: String,
    /// Offset from the label.
    pub offset: u64,
    /// File, line and column of the call.
    pub at: (u32, u32, u32),
}

/// `@!p opcode operands;`.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Guard predicate and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// Opcode with all modifiers, as written.
    pub opcode: String,
    /// Operands in order.
    pub operands: Vec<Operand>,
}

/// An operand with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// What it is.
    pub kind: OperandKind,
    /// Where it starts.
    pub at: At,
}

/// Operands of instructions.
#[derive(Clone, Debug, PartialEq)]
pub enum OperandKind {
    /// Register, special register, label, variable or `_`.
    Name(String),
    /// Literal.
    Const(Constant),
    /// `name+offset` outside brackets (address of a variable).
    Offset(String, i64),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `[base+offset, extra...]`: the extra operands are TMA coordinates.
    Address {
        /// Register, variable or constant.
        base: Box<Operand>,
        /// Bytes added.
        offset: i64,
        /// Operands after a comma inside the brackets.
        extra: Vec<Operand>,
    },
    /// `a|p`.
    Pair(Box<Operand>, Box<Operand>),
    /// `!p`.
    Not(Box<Operand>),
    /// `-a` on a name.
    Negate(Box<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
}
