//! The legality table: what each kernel family can hold, and by which mechanism it does what needs more than one block of
//! threads. Fusion asks it what may be joined, code generation has to provide every schedule it names.

use crate::ops::Opcode;

macro_rules! closed {
    ($(#[$doc:meta])* $name:ident { $($case:ident $text:literal $line:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = $line] $case),*
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &[$name] = &[$($name::$case),*];

            /// The name in text and JSON.
            pub fn name(self) -> &'static str {
                match self { $($name::$case => $text),* }
            }

            /// What it means, in a line.
            pub fn doc(self) -> &'static str {
                match self { $($name::$case => $line),* }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|x| x.name() == name)
            }
        }
    };
}

closed! {
    /// A kernel family.
    Family {
        Gemm "gemm" "Products of the rows of one operand with one or more weights.",
        Attention "attention" "Attention over a key/value pool.",
        DeltaRule "delta_rule" "The gated delta rule over a recurrent state.",
        Convolution "convolution" "Depthwise causal convolution over a window.",
        KvWrite "kv_write" "Row-wise work that ends in a key/value pool.",
        TopK "top_k" "Row-wise work around a selection of the largest.",
        Sampling "sampling" "Row-wise work around a sampling law or a draw.",
        Contract "contract" "Row-wise work around small products of two activations.",
        Scan "scan" "A serial loop of row-wise steps.",
        Row "row" "Elementwise work and reductions within rows.",
    }
}

closed! {
    /// How a kernel does what one block of threads cannot do alone, or what it may hold beyond its anchor.
    Mechanism {
        Packed "packed" "Several weights of one operand: a tile of columns belongs to one weight, or holds the same columns of all.",
        PartialSums "partial_sums" "Every column tile leaves its part of a row statistic; readers add the parts in tile order.",
        BlockShift "block_shift" "All rows of a request lie in one row tile, so that a row reads its neighbour from shared memory.",
        FirstTile "first_tile" "A value of the prologue is written by the blocks of the first column tile.",
        SplitKv "split_kv" "Positions are split over blocks; the last block of a row group joins the parts in split order.",
        SplitK "split_k" "With few rows the summed axis is split over blocks; the last block of a tile adds the parts in split order.",
        SplitRow "split_row" "A long row is split over blocks; the last block of a row joins the parts in split order.",
        HeadRows "head_rows" "A block holds whole heads, so that statistics of a head need no other block.",
        Siblings "siblings" "Independent work on the same rows shares a launch.",
    }
}

closed! {
    /// Why a fusion was taken or refused. There is no other reason.
    Reason {
        Prologue "prologue" "taken: computed while the operand is staged",
        Epilogue "epilogue" "taken: computed on the accumulators before they are written",
        Packed "packed" "taken: products of the same rows share a launch",
        SameRows "same_rows" "taken: a block of threads has every row it needs",
        Siblings "siblings" "taken: work on the same rows shares a launch",
        PartialSums "partial_sums" "taken in part: the producer leaves row statistics, the consumer finishes them",
        Shape "shape" "refused: the kernel of one has no row or tile that holds what the other needs",
        Dtype "dtype" "refused: the operands differ in dtype or accumulation",
        Layout "layout" "refused: an access between the two leaves the row or tile",
        EffectBetween "effect_between" "refused: a state is written between the two",
        SeveralUsers "several_users" "refused: others need the value too, and not in the form this kernel would hold",
        OverSharedMemory "over_shared_memory" "refused: what stays in the kernel does not fit a block's shared memory",
        NumericsPolicy "numerics_policy" "refused: the numerics policy does not allow what it needs",
        Costlier "costlier" "refused: one kernel would take longer than two",
        Capacity "capacity" "refused: more operands or ops than a kernel takes",
        GridDependency "grid_dependency" "refused: the consumer needs results of other blocks of the same kernel",
        Cycle "cycle" "refused: another kernel stands between the two",
        Control "control" "refused: a loop or a case stands between the two",
    }
}

impl Reason {
    /// Whether the reason is one of acceptance.
    pub fn accepts(self) -> bool {
        self <= Reason::PartialSums
    }
}

/// What a family's kernels may hold.
#[derive(Clone, Copy, Debug)]
pub struct FamilyDef {
    /// The family.
    pub family: Family,
    /// Ops that make a kernel one of this family; the first family in the table with an anchor in the kernel names it.
    pub anchors: &'static [Opcode],
    /// Whether elementwise ops may stand before the anchor, besides [`FamilyDef::rows_before`].
    pub before: bool,
    /// Reductions over the last axis that may stand before the anchor.
    pub rows_before: &'static [Opcode],
    /// Whether elementwise ops may stand behind the anchor, besides [`FamilyDef::rows_after`].
    pub after: bool,
    /// Reductions over the last axis that may stand behind the anchor.
    pub rows_after: &'static [Opcode],
    /// Mechanisms its schedules have.
    pub mechanisms: &'static [Mechanism],
    /// How threads are laid out, for the reader of a plan.
    pub schedule: &'static str,
}

/// The table. Families without a `before` of their own are row-wise: anything whose rows are independent.
pub const FAMILIES: &[FamilyDef] = &[
    FamilyDef {
        family: Family::Gemm,
        anchors: &[Opcode::Linear],
        before: true,
        rows_before: &[Opcode::RmsNorm],
        after: true,
        rows_after: &[],
        mechanisms: &[
            Mechanism::Packed,
            Mechanism::PartialSums,
            Mechanism::BlockShift,
            Mechanism::FirstTile,
            Mechanism::SplitK,
        ],
        schedule: "a block owns a tile of rows and columns and streams the summed axis; norms before it use partial sums of their producer",
    },
    FamilyDef {
        family: Family::Attention,
        anchors: &[Opcode::Attention],
        before: true,
        rows_before: &[],
        after: true,
        rows_after: &[],
        mechanisms: &[Mechanism::PartialSums, Mechanism::SplitKv],
        schedule: "a block owns a request, a group of heads and a split of the positions",
    },
    FamilyDef {
        family: Family::DeltaRule,
        anchors: &[Opcode::DeltaRule],
        before: true,
        rows_before: &[Opcode::L2Norm, Opcode::RmsNorm],
        after: true,
        rows_after: &[Opcode::RmsNorm, Opcode::L2Norm],
        mechanisms: &[Mechanism::PartialSums, Mechanism::HeadRows],
        schedule: "a block owns a request and a value head, its state in shared memory, and walks the rows",
    },
    FamilyDef {
        family: Family::Convolution,
        anchors: &[Opcode::CausalConv],
        before: true,
        rows_before: &[],
        after: true,
        rows_after: &[],
        mechanisms: &[Mechanism::PartialSums],
        schedule: "a thread owns a request and a channel and walks the rows",
    },
    row(Family::KvWrite, &[Opcode::KvWrite], &[Mechanism::Siblings, Mechanism::PartialSums]),
    row(Family::Scan, &[Opcode::Loop], &[Mechanism::Siblings, Mechanism::PartialSums]),
    row(
        Family::Sampling,
        &[Opcode::SamplingLaw, Opcode::Draw, Opcode::Coin],
        &[Mechanism::Siblings, Mechanism::PartialSums, Mechanism::SplitRow],
    ),
    row(
        Family::TopK,
        &[Opcode::TopK, Opcode::Sort],
        &[Mechanism::Siblings, Mechanism::PartialSums, Mechanism::SplitRow],
    ),
    row(Family::Contract, &[Opcode::Einsum], &[Mechanism::Siblings, Mechanism::PartialSums]),
    row(Family::Row, &[], &[Mechanism::Siblings, Mechanism::PartialSums, Mechanism::SplitRow]),
];

const fn row(family: Family, anchors: &'static [Opcode], mechanisms: &'static [Mechanism]) -> FamilyDef {
    FamilyDef {
        family,
        anchors,
        before: true,
        rows_before: &[],
        after: true,
        rows_after: &[],
        mechanisms,
        schedule: "a block owns rows: the leading axes that all its ops keep apart",
    }
}

/// Columns of a GEMM tile; a row statistic has one part a tile.
pub const TILE_COLUMNS: i64 = 128;
/// Rows of a GEMM tile.
pub const TILE_ROWS: i64 = 16;
/// Whether tiles of rows hold whole requests of this many rows, as [`Mechanism::BlockShift`] needs.
pub fn tiles_rows(rows: i64) -> bool {
    rows > 0 && TILE_ROWS % rows == 0
}
/// Elements up to which one block does all of an op without being waited for.
pub const TINY: i64 = 4096;
/// Most things a kernel may read and write: pointers and sizes have to fit the 4 KiB of launch arguments.
pub const MAX_OPERANDS: usize = 64;
/// Most ops of a kernel, so that its text stays readable and its registers few.
pub const MAX_OPS: usize = 96;

impl Family {
    /// The row of the table.
    pub fn def(self) -> &'static FamilyDef {
        // Every family has a row; a test says so.
        FAMILIES.iter().find(|d| d.family == self).unwrap_or(&FAMILIES[FAMILIES.len() - 1])
    }

    /// The family of a kernel with these ops.
    pub fn of(codes: &[Opcode]) -> Family {
        let has = |d: &&FamilyDef| d.anchors.iter().any(|a| codes.contains(a));
        FAMILIES.iter().find(has).map_or(Family::Row, |d| d.family)
    }

    /// Whether its kernels can leave row statistics for others; all can finish them.
    pub fn leaves(self) -> bool {
        self.is_row() || self == Family::Gemm
    }

    /// True for families whose blocks own rows and nothing else.
    pub fn is_row(self) -> bool {
        !matches!(self, Family::Gemm | Family::Attention | Family::DeltaRule | Family::Convolution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_one_row() {
        for f in Family::ALL {
            assert_eq!(FAMILIES.iter().filter(|d| d.family == *f).count(), 1, "{}", f.name());
        }
    }

    #[test]
    fn names_are_unique_and_read_back() {
        for r in Reason::ALL {
            assert_eq!(Reason::from_name(r.name()), Some(*r));
            assert_eq!(r.accepts(), r.doc().starts_with("taken"), "{}", r.name());
        }
        for m in Mechanism::ALL {
            assert_eq!(Mechanism::from_name(m.name()), Some(*m));
            assert!(FAMILIES.iter().any(|d| d.mechanisms.contains(m)), "{} has a schedule", m.name());
        }
    }
}
