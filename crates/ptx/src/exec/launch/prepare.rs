//! Checks of a launch against the kernel and the machine, and the parameter block.

use super::execute::execute;
use super::{Arg, Launch, LaunchCx, Report};
use crate::error::LaunchError;
use crate::exec::mma;
use crate::lower::Program;
use crate::memory::{Access, Buffer, Memory};

/// Limits of launches, those of the largest supported architecture.
const MAX_BLOCK: u64 = 1024;
const MAX_SHARED: usize = 227 << 10;
const MAX_CLUSTER: u64 = 16;
/// Warps of a launch; more would take days here.
const MAX_WARPS: u64 = 1 << 32;
/// Blocks that may be resident together.
const MAX_RESIDENT: u64 = 1 << 12;

impl Program {
    /// Runs the kernel on `mem`. Mistakes of the kernel are findings of the report.
    ///
    /// # Errors
    /// A configuration or arguments that cannot be launched.
    pub fn run(&self, mem: &Memory, launch: &Launch) -> Result<Report, LaunchError> {
        let cx = self.prepare(mem, launch)?;
        Ok(match (launch.options.check, launch.options.count) {
            (false, false) => execute::<false, false>(&cx),
            (false, true) => execute::<false, true>(&cx),
            (true, false) => execute::<true, false>(&cx),
            (true, true) => execute::<true, true>(&cx),
        })
    }

    fn prepare<'a>(&'a self, mem: &'a Memory, l: &Launch) -> Result<LaunchCx<'a>, LaunchError> {
        let config = |m: String| Err(LaunchError::Config(m));
        let threads: u64 = l.block.iter().map(|v| u64::from(*v)).product();
        if l.block[0].max(l.block[1]) > 1024 || l.block[2] > 64 || !(1..=MAX_BLOCK).contains(&threads) {
            return config(format!("block {:?} is not 1 to {MAX_BLOCK} threads (at most 64 in z)", l.block));
        }
        if l.grid.contains(&0) || l.grid[1].max(l.grid[2]) > 65535 || l.grid[0] > i32::MAX as u32 {
            return config(format!("grid {:?} is outside [1..2^31, 1..65536, 1..65536]", l.grid));
        }
        if let Some(max) = self.max_threads
            && threads > max
        {
            return config(format!("{threads} threads a block, the kernel allows {max}"));
        }
        if let Some(r) = self.required_block
            && r != l.block.map(u64::from)
        {
            return config(format!("block {:?}, the kernel requires {r:?}", l.block));
        }
        let cluster = match (l.cluster, self.cluster) {
            (Some(a), Some(b)) if a != b => {
                return config(format!("cluster {a:?}, the kernel requires {b:?}"));
            }
            (a, b) => a.or(b).unwrap_or([1; 3]),
        };
        let size: u64 = cluster.iter().map(|v| u64::from(*v)).product();
        if !(1..=MAX_CLUSTER).contains(&size) {
            return config(format!("cluster {cluster:?} is not 1 to {MAX_CLUSTER} blocks"));
        }
        if (0..3).any(|k| !l.grid[k].is_multiple_of(cluster[k])) {
            return config(format!("grid {:?} is not a multiple of cluster {cluster:?}", l.grid));
        }
        let shared_bytes = self.dynamic_base.saturating_add(l.shared);
        if shared_bytes > MAX_SHARED {
            return config(format!("{shared_bytes} bytes of shared memory exceed {MAX_SHARED}"));
        }
        let blocks: u64 = l.grid.iter().map(|v| u64::from(*v)).product();
        if blocks.saturating_mul(threads.div_ceil(32)) > MAX_WARPS {
            return config(format!("{blocks} blocks of {threads} threads exceed 2^32 warps"));
        }
        if l.options.cooperative && blocks > MAX_RESIDENT {
            return config(format!("{blocks} blocks exceed the {MAX_RESIDENT} that can be resident"));
        }
        let globals = self
            .globals
            .iter()
            .map(|g| Buffer::new(g.name.clone(), &g.bytes, if g.constant { Access::In } else { Access::InOut }))
            .collect();
        Ok(LaunchCx {
            prog: self,
            mem,
            globals,
            params: self.parameter_block(mem, &l.args)?,
            grid: l.grid,
            block: l.block,
            cluster,
            dynamic_shared: l.shared,
            shared_bytes,
            threads: threads as u32,
            warps_per_block: (threads as u32).div_ceil(32),
            options: l.options.clone(),
            simd: mma::detect(),
        })
    }

    fn parameter_block(&self, mem: &Memory, args: &[Arg]) -> Result<Vec<u8>, LaunchError> {
        if args.len() != self.params.len() {
            return Err(LaunchError::ArgumentCount { expected: self.params.len(), given: args.len() });
        }
        let mut block = vec![0; self.param_bytes];
        for (index, (a, p)) in args.iter().zip(&self.params).enumerate() {
            let fail = |message: String| Err(LaunchError::Argument { index, message });
            let bytes = match a {
                Arg::Buffer { id, .. } if id.0 >= mem.buffers.len() => return fail("no such buffer".into()),
                Arg::Buffer { id, offset } => mem.address(*id, *offset).to_le_bytes().to_vec(),
                Arg::U8(v) => vec![*v],
                Arg::U16(v) => v.to_le_bytes().to_vec(),
                Arg::U32(v) => v.to_le_bytes().to_vec(),
                Arg::I32(v) => v.to_le_bytes().to_vec(),
                Arg::U64(v) => v.to_le_bytes().to_vec(),
                Arg::I64(v) => v.to_le_bytes().to_vec(),
                Arg::F32(v) => v.to_le_bytes().to_vec(),
                Arg::F64(v) => v.to_le_bytes().to_vec(),
                Arg::Map(m) => match m.encode() {
                    Ok(raw) => raw.to_vec(),
                    Err(e) => return fail(e),
                },
                Arg::Bytes(b) => b.clone(),
            };
            if bytes.len() as u64 != p.size {
                return fail(format!("`{}` takes {} bytes, {} given", p.name, p.size, bytes.len()));
            }
            block[p.offset as usize..p.offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(block)
    }
}
