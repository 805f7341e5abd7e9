//! Reading what `--ptxas-options=-v` writes into the compile log.

/// Resources of one kernel as the log states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogKernel {
    /// Entry name.
    pub name: String,
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory in bytes.
    pub shared_bytes: u32,
    /// Stack frame in bytes.
    pub stack_bytes: u32,
    /// Bytes of spill stores.
    pub spill_stores: u32,
    /// Bytes of spill loads.
    pub spill_loads: u32,
    /// Barriers.
    pub barriers: u32,
}

/// The number in front of `unit`, as in `0 bytes spill stores`.
fn before(line: &str, unit: &str) -> Option<u32> {
    let head = line[..line.find(unit)?].trim_end();
    head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The entries of a compile log, in its order.
pub fn read_log(log: &str) -> Vec<LogKernel> {
    let mut out: Vec<LogKernel> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or("").to_string();
            out.push(LogKernel { name, ..LogKernel::default() });
            continue;
        }
        let Some(k) = out.last_mut() else { continue };
        if let Some(n) = before(line, " bytes spill stores") {
            // Functions called by the entry are listed before it; the entry's own line comes last.
            k.stack_bytes = before(line, " bytes stack frame").unwrap_or(0);
            k.spill_stores = n;
            k.spill_loads = before(line, " bytes spill loads").unwrap_or(0);
        } else if let Some(n) = before(line, " registers") {
            k.registers = n;
            k.shared_bytes = before(line, " bytes smem").unwrap_or(0);
            k.barriers = before(line, " barriers").unwrap_or(0);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_entries() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'a' for 'sm_90a'\n\
            ptxas info    : Function properties for a\n\
            \x20   8 bytes stack frame, 148 bytes spill stores, 200 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size, 1056 bytes smem\n\
            ptxas info    : Compiling entry function 'b' for 'sm_90a'\n\
            ptxas info    : Used 12 registers, used 0 barriers\n";
        let k = read_log(log);
        assert_eq!(k.len(), 2);
        assert_eq!((k[0].registers, k[0].shared_bytes, k[0].barriers), (255, 1056, 1));
        assert_eq!((k[0].stack_bytes, k[0].spill_stores, k[0].spill_loads), (8, 148, 200));
        assert_eq!((k[1].name.as_str(), k[1].registers, k[1].spill_stores), ("b", 12, 0));
        assert!(read_log("nothing here").is_empty());
    }
}
