//! Special registers.

/// A register that the machine fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NwarpId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    ClusterId(u8),
    NclusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtaRank,
    ClusterNctaRank,
    IsExplicitCluster,
    DynamicShared,
    TotalShared,
    SmId,
    NsmId,
    GridId,
    Zero,
}

impl Special {
    /// The special register of a name; 64-bit ones are marked.
    pub(super) fn parse(name: &str) -> Option<(Self, bool)> {
        let axis = |s: &str| match s {
            "x" => Some(0u8),
            "y" => Some(1),
            "z" => Some(2),
            _ => None,
        };
        if let Some((base, a)) = name.rsplit_once('.') {
            let a = axis(a)?;
            return Some((
                match base {
                    "%tid" => Self::Tid(a),
                    "%ntid" => Self::Ntid(a),
                    "%ctaid" => Self::Ctaid(a),
                    "%nctaid" => Self::Nctaid(a),
                    "%clusterid" => Self::ClusterId(a),
                    "%nclusterid" => Self::NclusterId(a),
                    "%cluster_ctaid" => Self::ClusterCtaid(a),
                    "%cluster_nctaid" => Self::ClusterNctaid(a),
                    _ => return None,
                },
                false,
            ));
        }
        Some(match name {
            "%laneid" => (Self::LaneId, false),
            "%warpid" => (Self::WarpId, false),
            "%nwarpid" => (Self::NwarpId, false),
            "%lanemask_eq" => (Self::LaneMaskEq, false),
            "%lanemask_le" => (Self::LaneMaskLe, false),
            "%lanemask_lt" => (Self::LaneMaskLt, false),
            "%lanemask_ge" => (Self::LaneMaskGe, false),
            "%lanemask_gt" => (Self::LaneMaskGt, false),
            "%cluster_ctarank" => (Self::ClusterCtaRank, false),
            "%cluster_nctarank" => (Self::ClusterNctaRank, false),
            "%is_explicit_cluster" => (Self::IsExplicitCluster, false),
            "%dynamic_smem_size" => (Self::DynamicShared, false),
            "%total_smem_size" => (Self::TotalShared, false),
            "%smid" => (Self::SmId, false),
            "%nsmid" => (Self::NsmId, false),
            "%gridid" => (Self::GridId, true),
            "%reserved_smem_offset_begin" | "%reserved_smem_offset_end" | "%reserved_smem_offset_cap" => {
                (Self::Zero, false)
            }
            _ => return None,
        })
    }
}
