//! What all workers of a launch share: buffers, parameters, the shape of the grid and its special registers.

use super::Options;
use crate::lower::{GLOBAL_VAR_WINDOW, Program, Special};
use crate::memory::{Buffer, FIRST_WINDOW, Memory};

/// What all workers of a launch share.
pub(crate) struct LaunchCx<'a> {
    pub(crate) prog: &'a Program,
    pub(crate) mem: &'a Memory,
    pub(super) globals: Vec<Buffer>,
    pub(crate) params: Vec<u8>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) dynamic_shared: usize,
    pub(crate) shared_bytes: usize,
    pub(crate) threads: u32,
    pub(crate) warps_per_block: u32,
    pub(crate) options: Options,
    pub(crate) simd: bool,
}

impl LaunchCx<'_> {
    pub(crate) fn buffer_count(&self) -> usize {
        self.mem.buffers.len() + self.globals.len()
    }

    /// Buffer of an address window, with its number.
    #[inline]
    pub(crate) fn buffer(&self, window: u64) -> Option<(usize, &Buffer)> {
        if window >= GLOBAL_VAR_WINDOW {
            let k = (window - GLOBAL_VAR_WINDOW) as usize;
            return self.globals.get(k).map(|b| (self.mem.buffers.len() + k, b));
        }
        let k = window.checked_sub(FIRST_WINDOW)? as usize;
        self.mem.buffers.get(k).map(|b| (k, b))
    }

    #[inline]
    pub(crate) fn buffer_at(&self, k: usize) -> &Buffer {
        let n = self.mem.buffers.len();
        if k < n { &self.mem.buffers[k] } else { &self.globals[k - n] }
    }

    fn clusters(&self) -> [u32; 3] {
        [0, 1, 2].map(|k| self.grid[k] / self.cluster[k])
    }

    pub(super) fn gangs(&self) -> u64 {
        if self.options.cooperative { 1 } else { self.clusters().iter().map(|c| u64::from(*c)).product() }
    }

    /// Blocks of a gang with their ranks, cluster by cluster.
    pub(crate) fn gang_blocks(&self, number: u64) -> Vec<([u32; 3], u32)> {
        let count = self.clusters();
        let total: u64 = count.iter().map(|c| u64::from(*c)).product();
        let range = if self.options.cooperative { 0..total } else { number..number + 1 };
        let [cx, cy, cz] = self.cluster;
        let mut out = Vec::new();
        for n in range {
            let x = (n % u64::from(count[0])) as u32;
            let y = (n / u64::from(count[0]) % u64::from(count[1])) as u32;
            let z = (n / u64::from(count[0]) / u64::from(count[1])) as u32;
            for k in 0..cz {
                for j in 0..cy {
                    for i in 0..cx {
                        let rank = i + cx * (j + cy * k);
                        out.push(([x * cx + i, y * cy + j, z * cz + k], rank));
                    }
                }
            }
        }
        out
    }

    /// Value of a special register.
    pub(crate) fn special(&self, s: Special, block: [u32; 3], rank: u32, warp: u32, lane: u32) -> u64 {
        let t = warp * 32 + lane;
        let axis = |v: [u32; 3], k: u8| u64::from(v[usize::from(k)]);
        let tid = [t % self.block[0], t / self.block[0] % self.block[1], t / self.block[0] / self.block[1]];
        let below = (1u64 << lane) - 1;
        let all = u64::from(u32::MAX);
        let blocks: u32 = self.cluster.iter().product();
        match s {
            Special::Tid(k) => axis(tid, k),
            Special::Ntid(k) => axis(self.block, k),
            Special::Ctaid(k) => axis(block, k),
            Special::Nctaid(k) => axis(self.grid, k),
            Special::LaneId => u64::from(lane),
            Special::WarpId => u64::from(warp),
            Special::NwarpId => u64::from(self.warps_per_block),
            Special::LaneMaskEq => 1 << lane,
            Special::LaneMaskLe => below | 1 << lane,
            Special::LaneMaskLt => below,
            Special::LaneMaskGe => all & !below,
            Special::LaneMaskGt => all & !(below | 1 << lane),
            Special::ClusterId(k) => u64::from(block[usize::from(k)] / self.cluster[usize::from(k)]),
            Special::NclusterId(k) => axis(self.clusters(), k),
            Special::ClusterCtaid(k) => u64::from(block[usize::from(k)] % self.cluster[usize::from(k)]),
            Special::ClusterNctaid(k) => axis(self.cluster, k),
            Special::ClusterCtaRank => u64::from(rank),
            Special::ClusterNctaRank => u64::from(blocks),
            Special::IsExplicitCluster => u64::from(blocks > 1),
            Special::DynamicShared => self.dynamic_shared as u64,
            Special::TotalShared => self.shared_bytes as u64,
            Special::SmId => 0,
            Special::NsmId => 1,
            Special::GridId => 1,
            Special::Zero => 0,
        }
    }
}
