//! Resolving a kernel: from syntax tree to a flat array of decoded instructions.
//!
//! Names become register numbers and addresses; literals, special registers and symbol addresses become registers that
//! hold their value from the start; calls are inlined. Every opcode is checked with all its modifiers: what the
//! interpreter does not execute exactly is refused here, with its line.

mod alu;
mod asynchronous;
mod builder;
mod call;
mod control;
mod convert;
mod forms;
mod memory;
mod moves;
mod opcode;
mod operands;
mod regalloc;
mod scope;
mod special;
mod tensor;
mod variables;
mod warp;
mod wmma;

use crate::error::Diagnostic;
use crate::exec::alu::Convert;
use crate::exec::inst::Inst;
use crate::exec::mma::{MmaSpec, WgmmaSpec};
use crate::exec::wmma::Wmma;
use crate::syntax::ast::Module;
pub(crate) use builder::GLOBAL_VAR_WINDOW;
pub use forms::{OpcodeForm, opcode_forms};
pub(crate) use special::Special;

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// PTX line.
    pub(crate) line: u32,
    /// Source file index of `.loc`, 0 for none.
    pub(crate) file: u32,
    /// Source line of `.loc`.
    pub(crate) source_line: u32,
    /// Index into the opcode texts.
    pub(crate) opcode: u32,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Byte offset in the parameter block.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A module variable that kernels address.
#[derive(Clone, Debug)]
pub(crate) struct GlobalVar {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) constant: bool,
}

/// A kernel resolved for execution.
#[derive(Clone)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) arch: String,
    pub(crate) code: Vec<Inst>,
    pub(crate) places: Vec<Place>,
    pub(crate) opcodes: Vec<String>,
    pub(crate) files: Vec<(u32, String)>,
    pub(crate) pool: Vec<u32>,
    pub(crate) converts: Vec<Convert>,
    pub(crate) mmas: Vec<MmaSpec>,
    pub(crate) wgmmas: Vec<WgmmaSpec>,
    pub(crate) wmmas: Vec<Wmma>,
    pub(crate) tables: Vec<Vec<u32>>,
    /// Registers per bank: words, double words, predicates.
    pub(crate) banks: [usize; 3],
    pub(crate) init_words: Vec<(u32, u32)>,
    pub(crate) init_doubles: Vec<(u32, u64)>,
    pub(crate) specials: Vec<(Special, u32)>,
    pub(crate) frame: usize,
    pub(crate) static_shared: usize,
    pub(crate) dynamic_base: usize,
    pub(crate) shared_vars: Vec<(String, u64, u64)>,
    pub(crate) params: Vec<Param>,
    pub(crate) param_bytes: usize,
    pub(crate) globals: Vec<GlobalVar>,
    pub(crate) max_threads: Option<u64>,
    pub(crate) required_block: Option<[u64; 3]>,
    pub(crate) cluster: Option<[u32; 3]>,
    /// Blocks may see each other through global atomics or strong accesses, so they run in order on one thread.
    pub(crate) ordered_blocks: bool,
    pub(crate) uses_async_proxy: bool,
    /// Word registers that each instruction touches; filled for kernels with `wgmma` only.
    pub(crate) word_operands: Vec<Vec<u32>>,
}

impl Program {
    /// Resolves one kernel of a module.
    ///
    /// # Errors
    /// Everything that cannot be resolved or is not supported, in the order of the text.
    pub fn load(module: &Module, entry: &str) -> Result<Self, Vec<Diagnostic>> {
        builder::build(module, entry)
    }

    /// Name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Architecture of the module's `.target`.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Parameters in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Decoded instructions, inlined calls included.
    pub fn instruction_count(&self) -> usize {
        self.code.len()
    }

    /// Bytes of statically declared shared memory, with padding up to the dynamic part.
    pub fn static_shared_bytes(&self) -> usize {
        self.dynamic_base
    }

    /// Whether blocks run one after the other because the kernel uses global atomics or strong accesses.
    pub fn runs_blocks_in_order(&self) -> bool {
        self.ordered_blocks
    }
}
