//! Finding NVRTC and compiling with it.

use crate::cubin::{CubinError, read_cubin};
use crate::log::read_log;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// Variable that names the folder of `libnvrtc.so`.
const DIR_VARIABLE: &str = "SPINEC_NVRTC_DIR";
/// Folder of the pinned wheel inside a virtual environment's `site-packages`.
const WHEEL_LIB: &str = "nvidia/cu13/lib";
/// Names under which the system may have the library.
const SYSTEM_NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// What can go wrong; a missing library is an ordinary error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvrtcError {
    /// No library in any of the places looked at.
    #[error("NVRTC not found; looked at: {}", tried.join(", "))]
    NotFound {
        /// Places looked at.
        tried: Vec<String>,
    },
    /// The library lacks a function.
    #[error("NVRTC at {path} has no function {symbol}")]
    Symbol {
        /// Library.
        path: String,
        /// Missing function.
        symbol: String,
    },
    /// The source, a name or an option has a zero byte.
    #[error("{what} contains a zero byte")]
    ZeroByte {
        /// Which text.
        what: String,
    },
    /// The compiler refused the source.
    #[error("compilation for {arch} failed:\n{log}")]
    Compile {
        /// Target.
        arch: String,
        /// The compiler's log.
        log: String,
    },
    /// Another call failed.
    #[error("{call} failed: {message}")]
    Call {
        /// Function.
        call: &'static str,
        /// The library's description.
        message: String,
    },
    /// The cubin cannot be read back.
    #[error("cubin for {arch}: {source}")]
    Cubin {
        /// Target.
        arch: String,
        /// Why.
        source: CubinError,
    },
}

/// How to compile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Target such as `sm_90a`.
    pub arch: String,
    /// Emit source lines into PTX and cubin.
    pub line_info: bool,
    /// `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// Folders of headers.
    pub include: Vec<PathBuf>,
    /// Further options as they are.
    pub extra: Vec<String>,
}

impl Options {
    /// Plain compilation for `arch`.
    pub fn new(arch: &str) -> Self {
        Self { arch: arch.into(), ..Self::default() }
    }

    fn arguments(&self) -> Vec<String> {
        let mut out =
            vec![format!("--gpu-architecture={}", self.arch), "--std=c++17".into(), "--ptxas-options=-v".into()];
        if self.line_info {
            out.push("-lineinfo".into());
        }
        out.extend(self.defines.iter().map(|d| format!("--define-macro={d}")));
        out.extend(self.include.iter().map(|d| format!("--include-path={}", d.display())));
        out.extend(self.extra.iter().cloned());
        out
    }
}

/// A kernel with its resources, from log and cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
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
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Bytes of the parameter block.
    pub param_bytes: u32,
}

/// Output of one compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// PTX text.
    pub ptx: String,
    /// Machine code.
    pub cubin: Vec<u8>,
    /// Warnings and resource lines.
    pub log: String,
    /// Kernels by name.
    pub kernels: Vec<Kernel>,
}

type Program = *mut c_void;
type Status = c_int;

/// A loaded NVRTC.
pub struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    error: unsafe extern "C" fn(Status) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    path: String,
    // Declared last: dropped after the functions that live in it.
    _libraries: Vec<Library>,
}

impl Nvrtc {
    /// Finds and loads NVRTC: the folder of `SPINEC_NVRTC_DIR`, the pinned wheel in a `.venv` here or above, the system.
    ///
    /// # Errors
    /// [`NvrtcError::NotFound`] when there is none; a variable that names a folder without it is not passed over.
    pub fn load() -> Result<Self, NvrtcError> {
        if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
            return Self::load_from(Path::new(&dir));
        }
        let mut tried = vec![format!("${DIR_VARIABLE} (not set)")];
        let here = std::env::current_dir().unwrap_or_default();
        for base in here.ancestors() {
            for dir in wheel_folders(base) {
                match Self::load_from(&dir) {
                    Err(NvrtcError::NotFound { tried: t }) => tried.extend(t),
                    other => return other,
                }
            }
        }
        for name in SYSTEM_NAMES {
            // SAFETY: loading NVRTC runs its initialisers, which have no preconditions.
            if let Ok(lib) = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
                return Self::bind(lib, Vec::new(), name.into());
            }
            tried.push(name.into());
        }
        Err(NvrtcError::NotFound { tried })
    }

    /// Loads NVRTC from one folder.
    ///
    /// # Errors
    /// [`NvrtcError::NotFound`] when the folder has no loadable library.
    pub fn load_from(dir: &Path) -> Result<Self, NvrtcError> {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|n| n.starts_with("libnvrtc") && n.contains(".so") && !n.contains(".alt."))
            .collect();
        names.sort();
        // The compiler opens its builtins by bare name: they must be in memory first.
        let (builtins, main): (Vec<_>, Vec<_>) = names.into_iter().partition(|n| n.contains("builtins"));
        let open = |name: &String| {
            // SAFETY: loading NVRTC and its builtins runs initialisers without preconditions.
            unsafe { Library::open(Some(dir.join(name)), RTLD_NOW | RTLD_GLOBAL) }.ok()
        };
        let keep: Vec<Library> = builtins.iter().filter_map(open).collect();
        for name in main.iter().rev() {
            if let Some(lib) = open(name) {
                return Self::bind(lib, keep, dir.join(name).display().to_string());
            }
        }
        Err(NvrtcError::NotFound { tried: vec![dir.display().to_string()] })
    }

    fn bind(lib: Library, mut keep: Vec<Library>, path: String) -> Result<Self, NvrtcError> {
        macro_rules! symbol {
            ($name:literal) => {{
                // SAFETY: the type is that of the function in nvrtc.h of every release that has it.
                match unsafe { lib.get(concat!($name, "\0").as_bytes()) } {
                    Ok(s) => *s,
                    Err(_) => return Err(NvrtcError::Symbol { path, symbol: $name.into() }),
                }
            }};
        }
        let (create, destroy, compile) =
            (symbol!("nvrtcCreateProgram"), symbol!("nvrtcDestroyProgram"), symbol!("nvrtcCompileProgram"));
        let (log_size, log) = (symbol!("nvrtcGetProgramLogSize"), symbol!("nvrtcGetProgramLog"));
        let (ptx_size, ptx) = (symbol!("nvrtcGetPTXSize"), symbol!("nvrtcGetPTX"));
        let (cubin_size, cubin) = (symbol!("nvrtcGetCUBINSize"), symbol!("nvrtcGetCUBIN"));
        let (error, version) = (symbol!("nvrtcGetErrorString"), symbol!("nvrtcVersion"));
        keep.push(lib);
        Ok(Self {
            create,
            destroy,
            compile,
            log_size,
            log,
            ptx_size,
            ptx,
            cubin_size,
            cubin,
            error,
            version,
            path,
            _libraries: keep,
        })
    }

    /// Path or name of the loaded library.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Version: major, minor.
    pub fn version(&self) -> (i32, i32) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for writes during the call.
        unsafe { (self.version)(&mut major, &mut minor) };
        (major, minor)
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), NvrtcError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a static string for every status.
        let message = unsafe { CStr::from_ptr((self.error)(status)) }.to_string_lossy().into_owned();
        Err(NvrtcError::Call { call, message })
    }

    fn fetch(
        &self,
        p: Program,
        call: &'static str,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, NvrtcError> {
        let mut n = 0usize;
        // SAFETY: `p` is a live program and `n` is valid for the write.
        self.check(call, unsafe { size(p, &mut n) })?;
        let mut out = vec![0u8; n];
        if n > 0 {
            // SAFETY: `out` has the size the library asked for.
            self.check(call, unsafe { get(p, out.as_mut_ptr().cast()) })?;
        }
        Ok(out)
    }

    /// Compiles one source to PTX and cubin. The same source and options give the same bytes.
    ///
    /// # Errors
    /// [`NvrtcError::Compile`] with the log when the source is refused.
    pub fn compile(&self, source: &str, name: &str, options: &Options) -> Result<Compiled, NvrtcError> {
        let text = |what: &str, s: &str| CString::new(s).map_err(|_| NvrtcError::ZeroByte { what: what.into() });
        let (source, name) = (text("the source", source)?, text("the name", name)?);
        let arguments = options.arguments().iter().map(|a| text("an option", a)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
        let mut p: Program = std::ptr::null_mut();
        // SAFETY: both strings end with zero and live through the call; no headers are passed.
        let status =
            unsafe { (self.create)(&mut p, source.as_ptr(), name.as_ptr(), 0, std::ptr::null(), std::ptr::null()) };
        self.check("nvrtcCreateProgram", status)?;
        let result = self.compile_program(p, &pointers, options);
        // SAFETY: `p` was created above and is not used afterwards.
        unsafe { (self.destroy)(&mut p) };
        result
    }

    fn compile_program(
        &self,
        p: Program,
        pointers: &[*const c_char],
        options: &Options,
    ) -> Result<Compiled, NvrtcError> {
        // SAFETY: `p` is live and the option strings outlive the call.
        let status = unsafe { (self.compile)(p, pointers.len() as c_int, pointers.as_ptr()) };
        let log = string(self.fetch(p, "nvrtcGetProgramLog", self.log_size, self.log)?);
        // Times would make equal compilations differ.
        let log: String = log.lines().filter(|l| !l.contains("Compile time")).flat_map(|l| [l, "\n"]).collect();
        if status != 0 {
            let reason = self.check("nvrtcCompileProgram", status).err().map_or(String::new(), |e| e.to_string());
            let log = if log.trim().is_empty() { reason } else { log };
            return Err(NvrtcError::Compile { arch: options.arch.clone(), log });
        }
        let ptx = string(self.fetch(p, "nvrtcGetPTX", self.ptx_size, self.ptx)?);
        // Source names are made absolute by the compiler; the folder must not reach what is stored.
        let here = std::env::current_dir().unwrap_or_default();
        let ptx = ptx.replace(&format!("\"{}/", here.display()), "\"");
        let cubin = self.fetch(p, "nvrtcGetCUBIN", self.cubin_size, self.cubin)?;
        let kernels = resources(&log, &cubin, &options.arch)?;
        Ok(Compiled { ptx, cubin, log, kernels })
    }
}

fn string(mut bytes: Vec<u8>) -> String {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn resources(log: &str, cubin: &[u8], arch: &str) -> Result<Vec<Kernel>, NvrtcError> {
    let logged = read_log(log);
    let read = read_cubin(cubin).map_err(|source| NvrtcError::Cubin { arch: arch.into(), source })?;
    Ok(read
        .into_iter()
        .filter_map(|c| {
            let l = logged.iter().find(|l| l.name == c.name)?;
            Some(Kernel {
                name: c.name,
                registers: c.registers,
                shared_bytes: l.shared_bytes,
                stack_bytes: l.stack_bytes,
                spill_stores: l.spill_stores,
                spill_loads: l.spill_loads,
                code_bytes: c.code_bytes,
                param_bytes: c.param_bytes,
            })
        })
        .collect())
}

/// Folders of the wheel in virtual environments of a project folder, in order of their names.
fn wheel_folders(base: &Path) -> Vec<PathBuf> {
    let lib = base.join(".venv/lib");
    let mut out: Vec<PathBuf> = std::fs::read_dir(lib)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path().join("site-packages").join(WHEEL_LIB)))
        .filter(|p| p.is_dir())
        .collect();
    out.sort();
    out
}
