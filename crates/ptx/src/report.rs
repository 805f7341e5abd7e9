//! Reports as tables for people.

use crate::{Counters, Finding, Report};
use std::fmt::{self, Display, Formatter};

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} at PTX line {}", self.kind.name(), self.ptx_line)?;
        if let Some(line) = self.source_line {
            match &self.source_file {
                Some(file) => write!(f, " ({file}:{line})")?,
                None => write!(f, " (source line {line})")?,
            }
        }
        write!(f, ": {}", self.message)?;
        write!(f, " [block {:?} warp {} lane {}", self.cta, self.warp, self.lane)?;
        if self.count > 1 {
            write!(f, ", {} times", self.count)?;
        }
        f.write_str("]")
    }
}

impl Display for Counters {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let t = &self.total;
        let per = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        writeln!(f, "warp instructions     {:>14}", self.warp_instructions)?;
        writeln!(f, "lane instructions     {:>14}", self.lane_instructions)?;
        let divergent = 100.0 * per(self.divergent_instructions, self.warp_instructions);
        writeln!(f, "divergent             {divergent:>13.1}%")?;
        for c in self.classes.iter().filter(|c| c.warp_instructions > 0) {
            writeln!(f, "  {:<20}{:>14}", c.class.name(), c.warp_instructions)?;
        }
        writeln!(f, "global requests       {:>14}", t.global_requests)?;
        writeln!(f, "  sectors a request   {:>14.2}", per(t.sectors, t.global_requests))?;
        writeln!(f, "  bytes loaded        {:>14}", t.bytes_loaded)?;
        writeln!(f, "  bytes stored        {:>14}", t.bytes_stored)?;
        writeln!(f, "  unique bytes        {:>14}", self.unique_bytes)?;
        writeln!(f, "shared requests       {:>14}", t.shared_requests)?;
        writeln!(f, "  wavefronts a request{:>14.2}", per(t.wavefronts, t.shared_requests))?;
        writeln!(f, "tensor operations     {:>14}", t.tensor_ops)?;
        writeln!(f, "barriers              {:>14}", self.barriers)?;
        writeln!(f, "mbarrier phases       {:>14}", self.mbarrier_phases)?;
        writeln!(f, "cluster barriers      {:>14}", self.cluster_barriers)?;
        writeln!(
            f,
            "\n{:>6} {:>6} {:>12} {:>12} {:>10} {:>10}  opcode",
            "PTX", "source", "executed", "lanes", "sectors", "wavefronts"
        )?;
        let mut lines: Vec<_> = self.lines.iter().collect();
        lines.sort_by_key(|l| (std::cmp::Reverse(l.counters.executed), l.ptx_line));
        for l in lines.iter().take(20) {
            let source = l.source_line.map_or("-".into(), |s| s.to_string());
            let c = &l.counters;
            let (line, op) = (l.ptx_line, &l.opcode);
            writeln!(
                f,
                "{line:>6} {source:>6} {:>12} {:>12} {:>10} {:>10}  {op}",
                c.executed, c.lanes, c.sectors, c.wavefronts
            )?;
        }
        Ok(())
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for x in &self.findings {
            writeln!(f, "{x}")?;
        }
        if !self.counters.lines.is_empty() {
            write!(f, "{}", self.counters)?;
        }
        Ok(())
    }
}
